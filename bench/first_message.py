"""From `pip install` to the first message, by `python -m bench.first_message WHEEL`.

A virtual environment that has the wheel, and borrows the dependencies of this one: how long their
download takes says nothing about SMQ. Nothing is compiled before it: caches are empty. Then the
broker is stopped and started a few times more, on the same data: what a start from a wheel takes.
"""

import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

SEND_AND_READ = """
import sys, smq
with smq.connect(sys.argv[1]) as client:
    client.create_topic("first")
    with client.producer() as producer:
        producer.send("first", b"message").result()
    with client.consumer("first", start="earliest") as reader, reader.poll(timeout_s=30) as batch:
        assert [bytes(record.value) for record in batch] == [b"message"]
"""


RESTARTS = 5


class FirstMessage(NamedTuple):
    """Seconds of each step, what the broker said, and how many kernels were compiled.

    later_s   until ready in later starts, median
    """

    install_s: float
    ready_s: float
    message_s: float
    later_s: float
    said: list[str]
    compiled: int


@contextmanager
def _serving(
    python: Path, directory: Path, environment: dict[str, str]
) -> Iterator[tuple[float, list[str]]]:
    """A broker; gives the seconds until it was ready, and what it said before."""
    command = [str(python), "-m", "smq.cli.main", "serve", "--port=0"]
    started = time.perf_counter()
    with subprocess.Popen(
        [*command, f"--data-dir={directory / 'data'}"],
        env=environment, stdout=subprocess.PIPE, text=True, cwd=directory,
    ) as broker:  # fmt: skip
        try:
            assert broker.stdout is not None
            said = list(takewhile(lambda line: not line.startswith("ready"), broker.stdout))
            yield time.perf_counter() - started, said
        finally:
            broker.terminate()


def install(wheel: Path, directory: Path) -> Path:
    """The Python of a new virtual environment that has `wheel` and borrows its dependencies."""
    venv.create(directory, with_pip=False)
    python = directory / "bin" / "python"
    (packages,) = directory.glob("lib/python*/site-packages")
    borrowed = [each for each in sys.path if each.endswith("site-packages")]
    (packages / "borrowed.pth").write_text("\n".join(borrowed))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--python", str(python), "install", str(wheel), "--no-deps"], check=True)
    return python


def first_message(wheel: Path, directory: Path) -> FirstMessage:
    """Install `wheel`, start a broker, send a record and read it."""
    started = time.perf_counter()
    python = install(wheel, directory / "venv")
    installed = time.perf_counter()
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["XDG_CACHE_HOME"] = str(directory / "cache")
    with _serving(python, directory, environment) as (ready_s, said):
        ready = time.perf_counter()
        subprocess.run(
            [str(python), "-c", SEND_AND_READ, str(directory / "data")],
            env=environment, check=True, cwd=directory, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        message_s = time.perf_counter() - ready
    later = []
    for _ in range(RESTARTS):
        with _serving(python, directory, environment) as (later_s, _):
            later.append(later_s)
    compiled = len(list((directory / "cache").rglob("*.nbc")))
    return FirstMessage(installed - started, ready_s, message_s, median(later), said, compiled)


def main(wheel: Path) -> None:
    """Print the seconds of each step."""
    with TemporaryDirectory() as directory:
        took = first_message(wheel, Path(directory))
    total = took.install_s + took.ready_s + took.message_s
    print(
        "| pip install, s | until ready, s | until the first message, s | all, s "
        "| later starts until ready, s | compiled |"
    )
    print("|---|---|---|---|---|---|")
    parts = (took.install_s, took.ready_s, took.message_s, total, took.later_s)
    print(f"| {' | '.join(f'{each:.2f}' for each in parts)} | {took.compiled} kernels |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
