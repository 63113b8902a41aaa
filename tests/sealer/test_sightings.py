"""Files are due when two sweeps in a row have seen them."""

from smq.sealer.sightings import Sightings


def test_a_name_is_due_when_the_last_sweep_has_seen_it_too() -> None:
    seen = Sightings()
    assert seen.take(["a", "b"]) == []
    assert seen.take(["c", "a"]) == [], "one sweep looks at many pages"
    seen.end()
    assert seen.take(["a", "d"]) == ["a"]
    seen.end()
    assert seen.take(["b", "c"]) == [], "the last sweep has not seen them"


def test_so_many_names_are_remembered_and_the_others_wait() -> None:
    seen = Sightings(names_max=2)
    seen.take(["a", "b", "c"])
    seen.end()
    assert seen.take(["a", "b", "c"]) == ["a", "b"]
    seen.end()
    assert seen.take(["c"]) == []
    seen.end()
    assert seen.take(["c"]) == ["c"]
