import ssl
import stat
from pathlib import Path

from typer.testing import CliRunner

from smq.cli.verbs import app


def run(*arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["certs", *arguments])
    assert done.exit_code == exit_code, done.output
    return done.output


def test_one_command_makes_an_authority_a_broker_and_clients(tmp_path: Path) -> None:
    home = tmp_path / "certs"
    output = run(str(home), "--client", "alice", "--client", "a/../b")
    assert f"ssl.keystore.location = {home / 'broker.pem'}" in output
    assert f"ssl.truststore.location = {home / 'ca.pem'}" in output
    names = {each.name for each in home.iterdir()}
    assert names == {"ca.pem", "ca-key.pem", "broker.pem", "alice.pem", "a_.._b.pem"}
    assert {stat.S_IMODE(each.stat().st_mode) for each in home.iterdir()} == {0o600}
    for each in ("broker.pem", "alice.pem"):
        context = ssl.create_default_context(cafile=str(home / "ca.pem"))
        context.load_cert_chain(home / each)


def test_a_later_run_uses_the_same_authority(tmp_path: Path) -> None:
    run(str(tmp_path))
    authority = (tmp_path / "ca.pem").read_bytes()
    run(str(tmp_path), "--client", "bob", "--host", "queue.example", "--days", "3")
    assert (tmp_path / "ca.pem").read_bytes() == authority
    assert (tmp_path / "bob.pem").exists()


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


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be written" in run(str(tmp_path / "file" / "certs"), exit_code=1)
