"""The verbs when the reader of their output goes away."""

import os
import pty
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from smq.client.client import connect
from tests.app.fake_broker import running
from tests.app.smq_command import SMQ
from tests.client.fake_kafka import FakeKafka, fake_kafka

DEADLINE_SECONDS = 20
FULL = "smq: standard output cannot be written: No space left on device\n"
VERBS = [
    ("topic", "list"),
    ("topic", "create", "b"),
    ("topic", "describe", "a"),
    ("produce", "a"),
    ("consume", "a"),
    ("consume", "a", "--follow"),
]


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    with fake_kafka() as fake:
        fake.add_topic("a")
        with connect(fake.bootstrap) as client, client.producer() as producer:
            producer.send("a", b"value")
        yield fake


def ended(command: Sequence[str], output: IO[bytes] | int) -> tuple[int, str]:
    """Exit code and stderr."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_full_disk_exits_with_a_sentence(kafka: FakeKafka, verb: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        assert ended([*SMQ, *verb, "--bootstrap", kafka.bootstrap], full) == (1, FULL)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_closed_pipe_exits_with_code_0(kafka: FakeKafka, verb: tuple[str, ...]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        assert ended([*SMQ, *verb, "--bootstrap", kafka.bootstrap], write_end) == (0, "")
    finally:
        os.close(write_end)


def test_a_closed_standard_output_exits_with_a_sentence(kafka: FakeKafka) -> None:
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *SMQ, "consume", "a"]
    code, sentence = ended([*closed, "--bootstrap", kafka.bootstrap], subprocess.DEVNULL)
    assert (code, sentence) == (1, "smq: there is no standard output to write to\n")


def test_status_tells_of_a_full_disk_too(tmp_path: Path) -> None:
    with running(tmp_path, 1), Path("/dev/full").open("wb") as full:
        assert ended([*SMQ, "status", "--data-dir", str(tmp_path)], full) == (1, FULL)


def test_a_record_does_not_act_on_a_terminal(kafka: FakeKafka) -> None:
    """Door fault 13: a value moved the cursor, set the title, and hid lines above it."""
    with connect(kafka.bootstrap) as client, client.producer() as producer:
        producer.send("a", b"\x1b]0;owned\x07\xff\ttab")
    command = [*SMQ, "consume", "a", "--bootstrap", kafka.bootstrap]
    ours, theirs = pty.openpty()
    try:
        assert ended(command, theirs)[0] == 0
        shown = os.read(ours, 4096)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"\\u001b]0;owned\\u0007\\xff\ttab" in shown
    assert b"\x1b]" not in shown  # The program itself ends with a reset of colours.
    piped = subprocess.run(command, capture_output=True, timeout=DEADLINE_SECONDS, check=True)
    assert b"\x1b]0;owned\x07\xff\ttab" in piped.stdout
