"""What the systemd unit starts, without systemd: its commands, with credentials as it has them."""

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import smq
from tests.another_user import needs_root, result_as
from tests.cli.test_prepare import READ
from tests.deploy.started import PROGRAMS, Described, login_of, run, started

UNIT = Path("deploy/smq.service").read_text()
README = Path("deploy/README.md").read_text()
TEAM, ROTATION = Path("docs/team.md").read_text(), Path("docs/rotation.md").read_text()
BROKER = 10_001  # The user `smq`, who need not be on this host.
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


def commands(page: str, words: str, home: Path) -> str:
    """The block of a page that has these words, with this test's directory and user."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    [block] = [each for each in blocks if words in each]
    left_out = ("pip ", "useradd ", "systemctl ", "smq prepare ", "served", "until ", "cat certs")
    kept = [each for each in block.splitlines() if not each.startswith(left_out)]
    text = "\n".join(kept).replace("/etc/smq", str(home / "smq"))
    return re.sub(r"\bsmq: ", f"{BROKER}:{BROKER} ", text).replace("root:smq", f"root:{BROKER}")


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that another user may enter, which pytest's are not."""
    with TemporaryDirectory(prefix="smq-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@needs_root
def test_the_units_user_reads_what_root_has_made_and_replaced_by_the_guides(home: Path) -> None:
    def follow(page: str, *words: str) -> set[str]:
        blocks = "\n".join(commands(page, each, home) for each in words)
        run(["bash", "-euc", f"umask 077\n{blocks}"], {})
        files = [str(each) for each in (home / "smq").rglob("*") if each.is_file()]
        # It may not list each directory: it is told the names, as the settings tell the broker.
        read = result_as(BROKER, lambda: [each for each in files if os.access(each, os.R_OK)])
        return {str(Path(each).relative_to(home / "smq")) for each in read}

    assert not follow(TEAM, "mkdir users\n", "cat > smq.toml", "install -d -m 0755 people")
    its_own = {"people/ca.pem", "smq.toml", "certs/broker.pem", "metrics.tokens"}
    assert follow(README, "useradd ") == its_own
    pair = home / "smq/certs/broker.pem"
    before = pair.read_bytes()
    assert follow(ROTATION, "smq certs certs ") == its_own
    assert pair.read_bytes() != before
    before = pair.read_bytes()
    follow(ROTATION, "smq certs certs-2 ")
    assert follow(ROTATION, "mv certs-2 certs") >= its_own
    assert pair.read_bytes() != before


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
