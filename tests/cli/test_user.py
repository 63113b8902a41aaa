"""smq user, against a broker and a data directory."""

import colorsys  # noqa: F401  (Rich imports it late, when another user cannot read it.)
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smq.app.process.unix_users import principal_of_user
from smq.app.supervisor.datadir import read_meta
from smq.cli.user import add
from smq.cli.verbs import app
from smq.security.credentials import ScramMechanism, credential_of, salted
from smq.store.access import stored
from smq.testing.smq_broker import SmqBroker
from tests.another_user import needs_root, result_as

SHA_256, SHA_512 = ScramMechanism
HINT = "; start one with `smq serve`, or name another with --bootstrap"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path / "broker") as broker:
        yield broker


def user(*arguments: object, exit_code: int = 0, password: str = "pencil") -> str:
    given = ["user", *map(str, arguments)]
    done = CliRunner().invoke(app, given, env={"SMQ_USER_PASSWORD": password})
    assert done.exit_code == exit_code, done.output
    return done.output


def test_a_user_is_added_listed_and_removed(broker: SmqBroker) -> None:
    at = "--bootstrap", broker.bootstrap
    assert user("add", "alice", *at) == "alice can log in with SCRAM-SHA-256 and SCRAM-SHA-512\n"
    user("add", "bob", "--mechanism", "SCRAM-SHA-512", "--iterations", 8192, *at)
    found = json.loads(user("list", "--json", *at))
    assert found == {
        "alice": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096},
        "bob": {"SCRAM-SHA-512": 8192},
    }
    assert user("remove", "alice", *at) == "alice is removed\n"
    assert user("list", *at).split() == ["bob", "SCRAM-SHA-512"]
    gone = user("remove", "alice", *at, exit_code=1)
    assert gone == "smq: there is no user alice; `smq user list` shows the users\n"


def test_a_password_that_is_no_text_is_refused_and_not_shown(tmp_path: Path) -> None:
    said = user("add", "alice", "--data-dir", tmp_path / "data", password="pen\udcff", exit_code=1)
    assert said == "smq: SMQ_USER_PASSWORD is no text in UTF-8\n"


def test_the_first_user_is_added_before_the_first_start(tmp_path: Path) -> None:
    data = tmp_path / "broker" / "data"
    user("add", "alice", "--data-dir", data)
    credentials = stored(data / "store.sqlite").credentials
    assert [each.user for each in credentials] == ["alice"] * 2
    first = credentials[0].credential
    keys = salted(SHA_256, "pencil", first.salt, 4096)
    assert first == credential_of(SHA_256, keys, first.salt, 4096)
    assert re.fullmatch(rb"[0-9a-z]{20,26}", first.salt), "else decoys would give themselves away"
    assert (data / "store.sqlite").stat().st_mode & 0o777 == 0o600
    [told] = map(json.loads, (data / "audit" / "acts.log").read_text().splitlines())
    assert (told["principal"], told["resource"]) == (str(principal_of_user(os.getuid())), "alice")
    assert (data / "audit" / "acts.log").stat().st_mode & 0o777 == 0o600
    assert read_meta(data).log_count == 0, "the first start decides how many logs there are"
    with SmqBroker(tmp_path / "broker", {"shards": "2"}) as broker:
        assert read_meta(data).log_count == 2
        assert "alice" in user("list", "--bootstrap", broker.bootstrap)
        assert {"shard-1", "shard-2"} <= broker.status().processes.keys()
        user("add", "bob", "--data-dir", data)
        assert user("remove", "alice", "--data-dir", data) == "alice is removed\n"
        assert user("list", "--data-dir", data) == user("list", "--bootstrap", broker.bootstrap)
        assert "bob" in user("list", "--data-dir", data)
    gone = user("list", "--data-dir", data, exit_code=1)
    assert gone == f"smq: no broker serves the data directory {data}{HINT}\n"


@needs_root
def test_the_directory_may_be_a_volume_of_roots_but_no_other_users(tmp_path: Path) -> None:
    """As Kubernetes opens a volume to a pod's group."""
    home = Path(tempfile.mkdtemp(prefix="smq-"))  # Others may not pass pytest's.
    home.chmod(0o755)
    volume = home / "volume"
    volume.mkdir()
    volume.chmod(0o2777)
    password = home / "password"
    password.write_text("x")
    password.chmod(0o644)  # Whatever umask a verb before has left.

    def added() -> str:
        try:
            add("alice", password, data_dir=volume)
        except SystemExit as refused:
            return str(refused)
        return "added"

    # Imports what is needed: another user may not read the modules.
    user("add", "alice", "--data-dir", home / "ours")
    try:
        assert result_as(4321, added) == "added"
        assert (volume / "store.sqlite").stat().st_uid == 4321
        os.chown(volume, 4322, -1)
        assert "is another user's; run this as its owner" in result_as(4321, added)
    finally:
        shutil.rmtree(home)


def test_a_password_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from a file\r\n")
    user("add", "alice", "--password-file", file, "--data-dir", tmp_path / "d")
    first = stored(tmp_path / "d" / "store.sqlite").credentials[0].credential
    keys = salted(SHA_256, "from a file", first.salt, 4096)
    assert first == credential_of(SHA_256, keys, first.salt, 4096)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("add", "unix/root"), "names that begin with unix/ are the host's users"),
        (("add", ""), "a name is not empty"),
        (("add", "a", "--mechanism", "PLAIN"), "there is no mechanism 'PLAIN'"),
        (("add", "a", "--password-file", "/nowhere"), "--password-file: /nowhere cannot be read"),
        (("add", "a", "--password-file", "/dev/zero"), "it is no file, but a pipe or a device"),
    ],
)
def test_a_user_that_cannot_be_is_refused(arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in user(*arguments, exit_code=1)
