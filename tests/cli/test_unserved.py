"""Users and rules of a directory that nobody serves; `smq user add` and `smq prepare` use it."""

from pathlib import Path

import pytest

from smq.cli.unserved import unserved
from smq.security.acls import Operation, Permission
from smq.security.credentials import SaltedPassword, ScramMechanism
from smq.security.published import ACCESS_BYTES_MAX
from smq.store.access import stored
from tests.another_user import needs_root, result_as
from tests.security.test_authorizer import rule

PASSWORD = SaltedPassword(ScramMechanism.SCRAM_SHA_256, 4096, b"salt", b"s" * 32)
READ = rule("orders", Operation.READ, Permission.ALLOW, principal="User:alice")


def test_changes_are_kept_when_the_block_ends(tmp_path: Path) -> None:
    with unserved(tmp_path / "data", "verb") as opened:
        assert opened.credentials_of("alice") == {}
        opened.give("alice", [PASSWORD])
        assert opened.add_rule(READ)
        assert not opened.add_rule(READ)
        assert len(opened.events) == 2
    with unserved(tmp_path / "data", "verb") as opened:
        assert [*opened.credentials_of("alice")] == [PASSWORD.mechanism]
        assert not opened.add_rule(READ)
    assert len((tmp_path / "data" / "audit" / "acts.log").read_text().splitlines()) == 2


def test_a_block_that_fails_changes_nothing(tmp_path: Path) -> None:
    with (  # noqa: PT012  (the second act fails)
        pytest.raises(SystemExit, match="smq: There is no room for more"),
        unserved(tmp_path / "data", "verb") as opened,
    ):
        opened.add_rule(READ)
        opened.give("a" * ACCESS_BYTES_MAX, [PASSWORD])
    found = stored(tmp_path / "data" / "store.sqlite")
    assert (found.credentials, found.rules) == ([], [])
    assert not (tmp_path / "data" / "audit").exists()
    with unserved(tmp_path / "data", "verb"):
        """It has been closed."""


def refused(data_dir: Path) -> str:
    """The sentence by which a directory is refused."""
    with pytest.raises(SystemExit) as exit_, unserved(data_dir, "verb"):
        raise AssertionError
    return str(exit_.value)


@needs_root
def test_a_directory_that_another_user_may_not_see_is_refused_with_a_sentence(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    with unserved(data_dir, "verb"):
        tmp_path.chmod(0o700)
    assert result_as(65534, lambda: refused(data_dir)) == (
        f"smq: {data_dir} lies in a directory that is closed to this user; run this as the owner "
        "of the data, as the broker runs"
    )


def test_a_directory_that_cannot_be_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refused(tmp_path / "file" / "data").startswith("smq: the data directory ")
    assert "cannot be used" in refused(tmp_path / ("x" * 300))
