"""What the systemd unit starts, without systemd: its commands, with credentials as it has them."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

import smq
from tests.cli.test_prepare import READ
from tests.deploy.started import PROGRAMS, Described, login_of, run, started

UNIT = Path("deploy/smq.service").read_text()
CREDENTIALS = "${CREDENTIALS_DIRECTORY}"


def lines(name: str) -> list[str]:
    found: list[str] = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return found


def load_credentials(place: Path, etc: Path) -> None:
    """As `man systemd.exec` says of LoadCredential: files of a directory have its name before."""
    place.mkdir(mode=0o700)
    for each in lines("LoadCredential"):
        name, _, path = each.partition(":")
        source = Path(path.replace("/etc/smq", str(etc)))
        files = {name: source}
        if source.is_dir():
            files = {f"{name}_{file.name}": file for file in source.iterdir()}
        for credential, file in files.items():
            shutil.copy(file, place / credential)
            (place / credential).chmod(0o400)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_unit_serves_users_by_their_rules(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    (etc / "users").mkdir(parents=True)
    (etc / "users" / "admin").write_text("first\n")
    (etc / "users" / "alice").write_text("second\n")
    (etc / "rules.json").write_text(json.dumps([READ]))
    (etc / "smq.toml").write_text(
        'advertised.listeners = "TEAM://localhost"\n'
        'listener.security.protocol.map = "TEAM:SASL_SSL"\n'
        f'ssl.keystore.location = "{etc}/certs/broker.pem"\n'
        'authorizer.class.name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"\n'
        'super.users = "User:admin"\n'
    )
    run(["smq", "certs", str(etc / "certs"), "--host", "localhost"], PROGRAMS)
    load_credentials(tmp_path / "credentials", etc)
    [before], [command] = lines("ExecStartPre"), lines("ExecStart")
    environment = dict(each.split("=", 1) for each in lines("Environment"))
    described = Described(
        [shlex.split(before)],
        shlex.split(command),
        environment | {"SMQ_LISTENERS": "TEAM://0.0.0.0:9192"},
        {
            CREDENTIALS: str(tmp_path / "credentials"),
            "/etc/smq/smq.toml": str(etc / "smq.toml"),
            "/var/lib/smq": str(tmp_path / "data"),
            "/var/cache/smq": str(Path("~/.cache").expanduser()),  # Compiled kernels.
        },
    )
    with started(described, tmp_path, "0.0.0.0:9192") as port:
        alice = login_of("alice", "second", etc / "certs/ca.pem")
        admin = login_of("admin", "first", etc / "certs/ca.pem")
        with smq.connect(f"localhost:{port}", config=admin) as client:
            client.create_topic("orders")
            client.create_topic("wages")
        with smq.connect(f"localhost:{port}", config=alice) as client:
            assert [*client.topics()] == ["orders"]


def test_secrets_of_the_unit_stand_in_no_command() -> None:
    words = " ".join(lines("ExecStart") + lines("ExecStartPre") + lines("Environment"))
    assert "password" not in words.lower()
    assert "/etc/smq/users" not in words, "the broker's user may not read them there"
