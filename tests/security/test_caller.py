"""The program at the other end of a connection."""

from smq.security.caller import SOFTWARE_MAX, Caller


def test_it_names_its_software_and_no_name_is_kept_that_is_too_long() -> None:
    caller = Caller("10.0.0.9", 4711)
    assert (caller.software_name, caller.software_version) == ("", "")
    caller.name_software("a" * 1000, "1.0")
    assert (caller.software_name, caller.software_version) == ("a" * SOFTWARE_MAX, "1.0")
