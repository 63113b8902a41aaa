"""Runs the blocks of a guide in docs/, as they are written, in a network namespace.

The namespace has the address that the guide's name of the host stands for, and nothing else of this
host's network; so ports are the guide's, too. Only its directories lie elsewhere. A line of a block
that ends with `# refused` must fail. Left out are pip's lines. `python -m tests.docs.guides NAME`
runs a walk of tests/docs/walks.py.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep

import pytest

DOCS = Path(__file__).parents[2] / "docs"
HOST, ADDRESS = "queue.example", "10.99.0.1"
DIRECTORIES = ("/etc/smq", "/var/lib/smq")
SECONDS_MAX = 540.0  # Spark starts six programs; under load each takes a minute.


class Guide:
    """A page whose blocks are run one after the other."""

    def __init__(self, name: str, home: Path) -> None:
        self._blocks = re.findall(r"```sh\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)
        self.home = home

    def here(self, text: str) -> str:
        """A text with the directories that stand for the guide's."""
        for each in DIRECTORIES:
            text = re.sub(rf"(?<![\w/]){each}\b", f"{self.home}{each}", text)
        return text

    def next(self) -> str:
        """The next block."""
        lines = self.here(self._blocks.pop(0)).splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("pip install "))

    def run(self, **variables: str) -> str:
        """Run the next block; returns what it prints."""
        return run(self.next(), self.home, **variables)

    def ends(self) -> None:
        """A block that is added is to be run, too."""
        assert self._blocks == []


def run(block: str, home: Path, **variables: str) -> str:
    """Run a block in a shell that ends at the first line that fails, or is not refused."""
    script = re.sub(r"(?m)^(.*\S) +# refused.*$", r"if \1; then exit 99; fi", block)
    output = home / "printed"
    with output.open("wb") as out:  # Not a pipe, which a child that stays would keep open.
        child = subprocess.Popen(
            ["bash", "-eu", "-o", "pipefail", "-c", f"umask 077\n{script}"],
            cwd=place(home),
            env=os.environ | variables,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    code = None
    try:
        with suppress(subprocess.TimeoutExpired):
            code = child.wait(SECONDS_MAX)
    finally:  # Also what the block has left.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    printed = output.read_text()
    sys.stdout.write(printed)
    assert code == 0, f"{code}: {block}"
    return printed


def place(home: Path) -> Path:
    """Where the guides' blocks are run."""
    directory = Path(f"{home}{DIRECTORIES[0]}")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def running(command: str, home: Path, output: Path) -> Iterator[None]:
    """A program of a guide, until the block ends."""
    with (
        output.open("wb") as out,
        subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=place(home), stdout=out, stderr=out
        ) as child,
    ):
        try:
            yield
        except BaseException:
            sys.stdout.write(output.read_text())
            raise
        finally:
            child.terminate()


def wait_for(what: str, home: Path, *, until: str = "") -> str:
    """Run a command until it works, and prints `until`."""
    deadline = monotonic() + SECONDS_MAX
    while True:
        done = subprocess.run(
            ["bash", "-c", what], cwd=place(home), capture_output=True, text=True, check=False
        )
        if done.returncode == 0 and until in done.stdout:
            return done.stdout
        assert monotonic() < deadline, (what, done.stdout, done.stderr)
        sleep(0.1)


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = monotonic() + SECONDS_MAX
    while not holds():
        assert monotonic() < deadline, what
        sleep(0.1)


def main(walk: str, home: Path) -> None:
    """Give the namespace the guide's host, and walk."""
    hosts = home / "hosts"
    hosts.write_text(f"{Path('/etc/hosts').read_text()}\n{ADDRESS} {HOST}\n")
    for line in (
        "ip link set lo up",
        f"ip address add {ADDRESS}/24 dev lo",  # To SMQ it is an address like any other.
        f"mount --bind {hosts} /etc/hosts",
    ):
        subprocess.run(line.split(), check=True)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.environ["SMQ_RUNTIME_DIR"] = f"{home}/run"
    getattr(import_module("tests.docs.walks"), walk)(home)


# --- from a test ---------------------------------------------------------------------------------


def in_a_namespace(*command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a network and a mount namespace of its own."""
    as_root = [] if os.getuid() == 0 else ["--map-root-user"]
    return subprocess.run(
        ["unshare", "--net", "--mount", *as_root, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * SECONDS_MAX,
    )


needs_a_namespace = pytest.mark.skipif(
    not all(map(shutil.which, ("unshare", "ip", "openssl", "curl", "jq")))
    or in_a_namespace("true").returncode != 0,
    reason="needs unshare, ip, openssl, curl and jq, and a system that allows network namespaces",
)


def walked(walk: str) -> str:
    """What a walk prints."""
    with tempfile.TemporaryDirectory(prefix="smq-") as directory:  # Sockets' paths are short.
        done = in_a_namespace(sys.executable, "-m", "tests.docs.guides", walk, directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
