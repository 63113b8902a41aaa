"""A program: warms the kernels, leads a log through all it may meet, and prints what compiled late.

Last it compiles one in the open, so that a listener that hears nothing is noticed.

In a process of its own, because in one that has run other tests everything is compiled already.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba.core import event

from shm.catalog import CatalogBlock
from shm.kernels.base.publish import read_version
from shm.kernels.record.last_of_key import SLOT_WORDS
from shm.warm.shard import warm
from smq.filer.content import crc_of
from smq.log.sync import SyncThread
from smq.log.times import first_batch_at
from smq.model.catalog import Catalog
from smq.model.config import Config
from smq.sealer.key_table import KeyTable
from smq.shard.produce import Producing
from smq.wire.legacy.records import write_message
from tests.app.shard.requests.test_legacy import ask, old, produce
from tests.app.shard_client import ServerBench, benches
from tests.log.logs import BOOT, LEVELS, OTHER_BOOT, memory_of, read_batch, start, turn
from tests.oracle.batches import batch
from tests.shard.directories import build_directory
from tests.shard.shard_bench import topic
from tests.shm.kernels.rig import NOW, TOPIC, request_of

NUMBERS = {10: 0, 11: 1, 12: 2, 13: 1}  # The partitions of the rig's topic, and their levels.
CATALOG = Catalog("c", 1, {TOPIC.name: TOPIC})


class Compilations(event.Listener):
    """Notes each kernel that is compiled; loading one from the cache compiles nothing."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_start(self, event: Any) -> None:
        self.names.append(f"{event.data['dispatcher']} {event.data['args']}")

    def on_end(self, event: Any) -> None:
        """Nothing more is to be known."""


def live(directory: Path, generation: int, boot: bytes) -> None:
    """A life of a log: every duty of a shard once."""
    memory, event_fd = memory_of(), os.eventfd(0)
    syncer = SyncThread(memory, event_fd)
    log = start(
        directory, generation=generation, boot=boot, memory=memory, syncer=syncer, levels=NUMBERS
    ).log
    codes = build_directory(
        CATALOG, lambda n: log.number << 32 | log.partitions.slots[n], bytes(16)
    )
    producing = Producing({0: log}, Config(), drain)
    for i in range(200):
        producer = (i % 9, 0, i // 9) if generation == 0 else (-1, -1, -1)
        records = batch(b"v" * 100, producer=producer)
        data = np.frombuffer(bytearray(request_of([("a", [(i % 3, records)])])), np.uint8)
        producing.run(data, 0, len(data), codes, NOW)
        turn(log)
    for number in NUMBERS:
        first_batch_at(log, number, 0, 1 << 40, 5)
        found = log.find(number, 0, 1 << 40, 1 << 20)
        if found is not None and len(found.spans):
            recent = found.spans[[log.in_ring(at) for at in found.spans[:, 0].tolist()]]
            log.gather(recent, np.zeros(found.total_bytes, np.uint8))
            read_batch(log, *found.spans[0].tolist())
    syncer.stop()
    log.close()
    os.close(event_fd)


def compact() -> None:
    """Both duties of a table of keys, whose rows may be in one piece or in several."""
    table = KeyTable(np.zeros((8, SLOT_WORDS), np.uint64), bytes(16))
    for offsets in ([[1, 2]], [[3], [4]]):
        keys = pa.array([b"a", b"b"])
        rows = pa.table({"_offset": pa.chunked_array(offsets, pa.int64()), "_key": keys})
        table.note(rows)
        table.last(rows)


def take_old_request(directory: Path) -> None:
    """A Produce of a client from before 2017."""
    with benches(directory, ServerBench) as make:
        ask(make(topic("one"), legacy_formats=True), produce(2, write_message(old(1, 0))))


def drain(log: Any) -> None:
    """What a shard does when its log can take no more."""
    turn(log)
    log.filing.make_room(set(LEVELS))


def main() -> None:
    warm()
    listener = Compilations()
    numba_event: Any = event
    numba_event.register("numba:compile", listener)
    block = CatalogBlock.create(100)
    block.publish(b"x")
    block.read()
    with tempfile.TemporaryDirectory() as directory:
        for generation, boot in enumerate((BOOT, OTHER_BOOT)):  # The second after a power loss.
            live(Path(directory), generation, boot)
        take_old_request(Path(directory))
    compact()
    crc_of(b"a payload")
    last: Any = read_version
    last.recompile()
    sys.stdout.write("\n".join(listener.names))


if __name__ == "__main__":
    main()
