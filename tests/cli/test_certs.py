import fcntl
import os
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shm.private import LOCK, open_lock
from smq.cli import certs as module, key_pairs
from smq.cli.verbs import app
from tests.another_user import needs_root


def run(*arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["certs", *arguments])
    assert done.exit_code == exit_code, done.output
    return done.output


def contents(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in directory.iterdir()}


def test_one_command_makes_an_authority_a_broker_and_clients(tmp_path: Path) -> None:
    home = tmp_path / "certs"
    output = run(str(home), "--client", "alice", "--client", "Bob B.")
    assert f"ssl.keystore.location = {home / 'broker.pem'}" in output
    assert f"ssl.truststore.location = {home / 'ca.pem'}" in output
    names = {each.name for each in home.iterdir()}
    assert all(f"{home / name} is made" in output for name in names)
    assert names == {"ca.pem", "ca-key.pem", "broker.pem", "alice.pem", "Bob B..pem"}
    assert {stat.S_IMODE(each.stat().st_mode) for each in home.iterdir()} == {0o600}
    for each in ("broker.pem", "alice.pem"):
        context = ssl.create_default_context(cafile=str(home / "ca.pem"))
        context.load_cert_chain(home / each)


def test_a_later_run_uses_the_same_authority(tmp_path: Path) -> None:
    run(str(tmp_path))
    authority = (tmp_path / "ca.pem").read_bytes()
    output = run(str(tmp_path), "--client", "bob", "--host", "queue.example", "--days", "3")
    assert (tmp_path / "ca.pem").read_bytes() == authority
    assert "ca.pem is made" not in output
    assert f"{tmp_path / 'bob.pem'} is made" in output


def test_a_brokers_certificate_stays_until_a_host_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path / 'broker.pem'} is made" in run(str(tmp_path), "--host", "queue.example")
    of_the_broker = (tmp_path / "broker.pem").read_bytes()
    output = run(str(tmp_path), "--client", "bob")
    assert f"{tmp_path / 'broker.pem'} stays as it is; --host makes it anew" in output
    assert (tmp_path / "broker.pem").read_bytes() == of_the_broker
    assert f"{tmp_path / 'broker.pem'} is made" in run(str(tmp_path), "--host", "other.example")
    assert (tmp_path / "broker.pem").read_bytes() != of_the_broker


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--client", "ca"), "ca.pem is the authority's or the broker's"),
        (("--client", "CA-key"), "CA-key.pem is the authority's or the broker's"),
        (("--client", "broker"), "broker.pem is the authority's or the broker's"),
        (("--client", ""), "'' would be a file's name"),
        (("--client", "../bob"), "'../bob' would be a file's name"),
        (("--client", "a/b"), "'a/b' would be a file's name"),
        (("--client", "a\n"), "'a\\n' would be a file's name"),
        (("--client", "x" * 65), f"{'x' * 65}.pem cannot be made"),
        (("--host", "nnn.é"), "broker.pem cannot be made"),
        (("--host", ""), "broker.pem cannot be made: a host's name is not empty"),
        (("--host", "localhost:9092"), "'localhost:9092' is no name and no address of a host"),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_a_file_is_written(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in run(str(tmp_path), "--client", "bob", *arguments, exit_code=1)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("gone", "there"), [("ca-key.pem", "ca.pem"), ("ca.pem", "ca-key.pem")])
def test_the_half_of_an_authority_that_is_left_is_kept(
    tmp_path: Path, gone: str, there: str
) -> None:
    run(str(tmp_path))
    (tmp_path / gone).unlink()
    left = contents(tmp_path)
    output = run(str(tmp_path), "--client", "bob", "--host", "a", exit_code=1)
    assert f"has {there} and not {gone}, which belongs to it" in output
    assert contents(tmp_path) == left


def test_halves_of_two_authorities_sign_nothing(tmp_path: Path) -> None:
    run(str(tmp_path / "one"))
    run(str(tmp_path / "two"))
    (tmp_path / "one" / "ca-key.pem").rename(tmp_path / "two" / "ca-key.pem")
    output = run(str(tmp_path / "two"), "--client", "bob", exit_code=1)
    assert "the authority's key and its certificate do not belong together" in output


def test_a_brokers_certificate_of_another_authority_is_not_left_beside_a_new_one(
    tmp_path: Path,
) -> None:
    run(str(tmp_path))
    for half in ("ca.pem", "ca-key.pem"):
        (tmp_path / half).unlink()
    left = contents(tmp_path)
    output = run(str(tmp_path), "--client", "bob", exit_code=1)
    assert "broker.pem has no certificate of the authority ca.pem; move it away" in output
    assert contents(tmp_path) == left
    run(str(tmp_path), "--host", "localhost")
    assert (tmp_path / "broker.pem").read_bytes() != left["broker.pem"]
    run(str(tmp_path), "--client", "bob")


def test_a_file_that_is_no_client_of_this_authority_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text("mine")
    output = run(str(tmp_path), "--client", "server", exit_code=1)
    assert "server.pem has no certificate of the authority ca.pem; move it away" in output
    assert contents(tmp_path) == {"server.pem": b"mine"}


def test_a_later_run_says_that_certificates_end_with_the_authority(tmp_path: Path) -> None:
    assert "they end with their authority" not in run(str(tmp_path), "--days", "3")
    assert "they end with their authority" not in run(str(tmp_path), "--client", "a", "--days", "3")
    assert "they end with their authority, on 2" in run(str(tmp_path), "--client", "a")


@pytest.mark.parametrize("file", ["ca-key.pem", "ca.pem"])
def test_an_authority_that_cannot_be_read_is_refused(tmp_path: Path, file: str) -> None:
    run(str(tmp_path))
    (tmp_path / file).write_text("no PEM")
    assert "bob.pem cannot be made" in run(str(tmp_path), "--client", "bob", exit_code=1)


def test_a_run_that_is_killed_leaves_whole_files_and_the_next_makes_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def kill(_path: Path, _target: Path) -> None:
        raise KilledError

    run(str(tmp_path), "--client", "bob")
    before = contents(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", kill)
        with pytest.raises(KilledError):
            run(str(tmp_path), "--host", "a", "--client", "bob")
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    run(str(tmp_path), "--host", "a", "--client", "bob")
    after = contents(tmp_path)
    assert after.keys() == before.keys()
    made = {name for name in before if after[name] != before[name]}
    assert made == {"broker.pem", "bob.pem"}


def test_a_second_run_beside_the_first_is_refused_before_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each makes an authority, and certificates of one stay beside the other."""
    make, said = key_pairs.make_pair, list[str]()

    def while_another_runs(*given: Any) -> key_pairs.KeyPair:
        said.append(run(str(tmp_path), "--client", "carol", exit_code=1))
        return make(*given)

    monkeypatch.setattr(key_pairs, "make_pair", while_another_runs)
    run(str(tmp_path), "--client", "bob")
    assert f"another `smq certs` writes to {tmp_path}; wait" in " ".join(said[0].split())
    assert {*contents(tmp_path)} == {"ca.pem", "ca-key.pem", "broker.pem", "bob.pem"}
    monkeypatch.setattr(key_pairs, "make_pair", make)
    run(str(tmp_path), "--client", "carol")


def test_a_reader_of_the_directory_keeps_no_run_from_it(tmp_path: Path) -> None:
    """Each user of this host may lock a file or a directory that it can open."""
    reader = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(reader, fcntl.LOCK_EX)
        run(str(tmp_path))
    finally:
        os.close(reader)
    assert {*contents(tmp_path)} == {"ca.pem", "ca-key.pem", "broker.pem"}


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_run_whose_lock_another_has_removed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_made_again: bool
) -> None:
    """Who comes now makes a lock of its own."""

    def opened(directory: Path) -> int:
        fd = open_lock(directory)
        (directory / LOCK).unlink()
        if is_made_again:
            os.close(open_lock(directory))
        return fd

    monkeypatch.setattr(module, "open_lock", opened)
    assert "another `smq certs` writes" in run(str(tmp_path), exit_code=1)
    assert {*contents(tmp_path)} == ({LOCK} if is_made_again else set()), "it is the other run's"


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert "others may write to" in run(str(tmp_path), exit_code=1)
    assert not [*tmp_path.iterdir()]


def test_a_file_that_is_there_does_not_get_the_key(tmp_path: Path) -> None:
    planted = tmp_path / "ca-key.pem.new"
    planted.touch()
    planted.chmod(0o666)
    held = planted.open()
    run(str(tmp_path))
    assert held.read() == ""
    held.close()
    assert stat.S_IMODE((tmp_path / "ca-key.pem").stat().st_mode) == 0o600


@needs_root
def test_a_file_that_root_replaces_stays_its_owners_and_closed_to_others(tmp_path: Path) -> None:
    run(str(tmp_path), "--client", "bob")
    pair = tmp_path / "broker.pem"
    os.chown(pair, 12_345, 12_346)
    for mode, expected in ((0o600, 0o600), (0o440, 0o440), (0o664, 0o640)):
        pair.chmod(mode)
        before = pair.read_bytes()
        run(str(tmp_path), "--host", "queue.example", "--client", "bob")
        assert pair.read_bytes() != before
        assert _owner_and_mode(pair) == (12_345, 12_346, expected)
        assert _owner_and_mode(tmp_path / "bob.pem") == (0, 0, 0o600)


@needs_root
def test_a_file_that_another_may_have_planted_gives_its_owner_no_key(tmp_path: Path) -> None:
    run(str(tmp_path))
    pair, elsewhere = tmp_path / "broker.pem", tmp_path / "elsewhere"
    os.chown(pair, 12_345, 12_345)
    tmp_path.chmod(0o770)
    run(str(tmp_path), "--host", "queue.example")
    assert _owner_and_mode(pair) == (0, 0, 0o600)
    tmp_path.chmod(0o700)
    pair.rename(elsewhere)
    pair.symlink_to(elsewhere)
    os.chown(pair, 12_345, 12_345, follow_symlinks=False)
    run(str(tmp_path), "--host", "queue.example")
    assert _owner_and_mode(pair) == (0, 0, 0o600)


def _owner_and_mode(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be written" in run(str(tmp_path / "file" / "certs"), exit_code=1)
