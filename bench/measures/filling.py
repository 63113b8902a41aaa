"""Fills topics with so many gigabytes, and waits until SMQ has sealed them."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from bench.clients.programs import ClientFailed, librdkafka, raw
from bench.measures.lines import GB, Figures
from smq.testing.processes import Broker

SEALED_S_MAX = 600
RECORD_BYTES = 1024
READER = {"fetch_message_max_bytes": 8 << 20, "fetch_max_bytes": 50 << 20}
FLOOD_CLIENT = {"batch_size": 1_000_000, "batch_num_messages": 1000, "linger_ms": 5}


def fill(broker: Broker, name: str, gigabytes: float) -> tuple[int, Figures]:
    """So many GB of 1 KiB, half random: how many records, and the flood's figures."""
    records = int(gigabytes * GB / RECORD_BYTES)
    figures = librdkafka(
        broker.bootstrap, "flood", topic=name, records=records, record_bytes=RECORD_BYTES,
        **FLOOD_CLIENT,
    )  # fmt: skip
    return records, figures


def fill_spread(broker: Broker, name: str, gigabytes: float) -> int:
    """So many GB of 1 KiB over eight partitions; how many records."""
    figures = raw(
        broker.port, "produce", topic=name, partitions=8, batch_bytes=1_000_000,
        bytes=int(gigabytes * GB),
    )  # fmt: skip
    return int(figures["bytes"] / RECORD_BYTES)


def sealed_bytes(broker: Broker) -> tuple[int, int]:
    """Records that segments have, and their bytes; nothing of other brokers."""
    path = getattr(broker, "data_dir", Path()) / "store.sqlite"
    if not path.is_file():
        return 0, 0
    question = "SELECT coalesce(sum(record_count), 0), coalesce(sum(bytes), 0) FROM segments"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
        records, size = store.execute(question).fetchone()
    return int(records), int(size)


def await_sealed(broker: Broker, records: int) -> None:
    """Wait until segments have this many records; at once for other brokers than ours."""
    deadline = time.monotonic() + SEALED_S_MAX
    while broker.name == "smq" and sealed_bytes(broker)[0] < records:
        if time.monotonic() > deadline:
            raise ClientFailed(f"after {SEALED_S_MAX} s not all is sealed")
        time.sleep(0.2)
