"""A member of the consumer group: reads flights until it is stopped or killed.

`python -m examples.demo.member <bootstrap> <file>`. It appends the id of each flight to its file
before it commits. So the files of all members together show what was read, despite kills.
"""

import signal
import sys
from array import array
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from confluent_kafka import Consumer, KafkaException, Message

from smq.app.process.clock import monotonic_ms

TOPIC = "flights"
GROUP = "delays"
SESSION_TIMEOUT_MS = 6000  # The broker's minimum: how long a killed member goes unnoticed.
COMMIT_EVERY_MS = 500
BATCH_MESSAGES_MAX = 5000


def flight_id(message: Message) -> int:
    """The row number, from a header, so that nothing need be parsed."""
    headers = message.headers()
    assert isinstance(headers, list)
    value = headers[0][1]
    assert isinstance(value, bytes)
    return int.from_bytes(value, "little")


def read(consumer: Consumer, ids_file: BinaryIO) -> None:
    """Read and commit until SIGTERM."""
    stopped = False

    def stop(_signal: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    commit_due_ms = monotonic_ms() + COMMIT_EVERY_MS
    while not stopped:
        messages = [m for m in consumer.consume(BATCH_MESSAGES_MAX, 0.2) if m.error() is None]
        array("I", map(flight_id, messages)).tofile(ids_file)
        ids_file.flush()
        if monotonic_ms() >= commit_due_ms:
            consumer.commit(asynchronous=True)
            commit_due_ms = monotonic_ms() + COMMIT_EVERY_MS
    with suppress(KafkaException):  # There is nothing to commit.
        consumer.commit(asynchronous=False)
    consumer.close()


def main() -> None:
    bootstrap, file = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 500,
            "log_level": 0,  # A killed broker is expected here.
        }
    )
    consumer.subscribe([TOPIC])
    with Path(file).open("wb") as ids_file:
        read(consumer, ids_file)


if __name__ == "__main__":
    main()
