"""Starts what deploy/ describes without Docker, Kubernetes or systemd: its commands, with its
environment, and its paths elsewhere."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from smq.app.process.status import read_status
from smq.testing.processes import Child, ReservedPorts

SECONDS_MAX = 120.0  # The first start on a machine compiles the kernels.
PROGRAMS = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


class Described(NamedTuple):
    """Commands that run before the broker, and the broker; in `places` paths and addresses that
    stand for others, the longest first."""

    before: Sequence[Sequence[str]]
    broker: Sequence[str]
    environment: Mapping[str, str]
    places: Mapping[str, str]

    def here(self, text: str) -> str:
        """A text with the paths of this test."""
        for path in sorted(self.places, key=len, reverse=True):
            text = text.replace(path, self.places[path])
        return text


def run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a command that must work; returns what it prints."""
    given = os.environ | PROGRAMS | dict(environment)
    done = subprocess.run(
        command, env=given, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def started(described: Described, home: Path, listens: str) -> Iterator[int]:
    """Run it below `home`, whose `data` is its data directory; yields the port in place of the one
    of `listens`, which is 0.0.0.0 and a port."""
    # Sockets' paths are short, and pytest's are not.
    with TemporaryDirectory(prefix="smq-") as runtime_dir:
        yield from _started(described, home, listens, runtime_dir)


def _started(described: Described, home: Path, listens: str, runtime_dir: str) -> Iterator[int]:
    reserved = ReservedPorts(1)
    places = {**described.places, listens: f"127.0.0.1:{reserved.first}"}
    described = described._replace(places=places)
    given = {name: described.here(value) for name, value in described.environment.items()}
    given |= {"SMQ_DATA_DIR": str(home / "data"), "SMQ_RUNTIME_DIR": runtime_dir}
    for each in described.before:
        run([described.here(word) for word in each], given)
    words = [described.here(word) for word in described.broker]
    broker = Child.start(words, home / "output", given | PROGRAMS)

    def is_ready() -> bool:
        found = read_status(home / "data")
        return found is not None and found[0].ready

    try:
        broker.wait_ready(is_ready, SECONDS_MAX)
        yield reserved.first
    finally:
        broker.terminate()
        reserved.close()


def login_of(user: str, password: str, authority: Path) -> dict[str, str]:
    """How a client logs in."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password.strip(),
        "ssl.ca.location": str(authority),
    }
