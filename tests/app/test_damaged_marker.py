"""Damaged markers in the WAL of a broker that was killed: real files, real processes."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from shm.kernels.base.words import BATCH_HEADER_BYTES
from smq.client.client import Client
from smq.testing.smq_broker import SmqBroker
from smq.wire.markers import Marker, write_marker

VERSION_AND_EPOCH_BYTES = 7  # The end of a marker's record, with its count of headers.


class Unwanted(Exception):
    """Aborts a transaction."""


def transact(client: Client) -> None:
    """A committed, an aborted and a committed transaction; then a record outside of any."""
    with client.producer(transactional_id="one") as producer:
        for value in (b"a", b"not", b"c"):
            with suppress(Unwanted), producer.transaction():
                producer.send("t", value)
                producer.flush()
                if value == b"not":
                    raise Unwanted
    with client.producer() as producer:
        producer.send("t", b"d").result()


def values(client: Client, isolation_level: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    with client.consumer("t", start="earliest", isolation_level=isolation_level) as consumer:
        while len(found) < count:
            with consumer.poll(timeout_s=30) as batch:
                assert batch, f"only {found} came"
                found += [bytes(record.value or b"") for record in batch]
        assert not any(consumer.lag().values())
    return found


def damage(wal: Path) -> int:
    """Change the type in each marker; how many there are."""
    data, count = bytearray(wal.read_bytes()), 0
    for committed in (True, False):
        marker = write_marker(Marker(1, 1, committed, 0), 0)
        record = marker[BATCH_HEADER_BYTES:-VERSION_AND_EPOCH_BYTES]
        while (at := data.find(record)) >= 0:
            data[at + 8] ^= 0x40
            count += 1
    wal.write_bytes(data)
    return count


@pytest.mark.timeout(120)
def test_transactions_whose_markers_are_damaged_end_as_they_did(tmp_path: Path) -> None:
    """Acked records of committed transactions were gone for those who read committed ones."""
    with SmqBroker(tmp_path) as broker:
        with broker.connect() as client:
            client.create_topic("t", 1)
            transact(client)
        for pid in broker.pids():
            os.kill(pid, signal.SIGKILL)
        broker.end()
        assert sum(map(damage, (broker.data_dir / "logs").rglob("*.wal"))) == 3
    with SmqBroker(tmp_path) as broker, broker.connect() as client:
        assert values(client, "read_uncommitted", 4) == [b"a", b"not", b"c", b"d"]
        assert values(client, "read_committed", 3) == [b"a", b"c", b"d"]
