"""Facts of a running broker, read without asking it, so also while a shard hangs.

The sources are the supervisor's status file, the shared memory it names, and the data directory.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shm.kernels.base import words
from shm.segment import LogMemory
from smq.app.process.clock import sleep, wall_ms
from smq.app.process.lake import table_facts
from smq.app.process.status import COUNTERS, attach_logs, counters_of, read_status
from smq.log.room import room_of
from smq.model.catalog import Topic
from smq.model.errors import StoreError
from smq.shard.space import pace
from smq.store.manifest import Manifest, open_manifest
from smq.store.overview import open_overview


class OpenTransaction(NamedTuple):
    """A transaction that has been open for `open_s`; `parts`: its topics and partitions."""

    transactional_id: str
    producer_id: int
    open_s: float
    parts: Sequence[tuple[str, int]]


def broker_facts(data_dir: Path, window_s: float) -> dict[str, Any] | None:
    """All facts, with rates over `window_s`; None if no broker serves this directory."""
    found = read_status(data_dir)
    if found is None:
        return None
    status, block = found
    memories = attach_logs(status)
    topics, tables = _stored(data_dir, memories)
    return {
        **asdict(status),
        "ready": status.ready,
        "up_ms": wall_ms() - status.started_ms,
        "nodes": [
            node._asdict()
            | {"connections": block.connections(node.id), "sessions": block.sessions(node.id)}
            for node in block.nodes()
        ],
        "logs": _logs(memories, window_s),
        "topics": topics,
        "tables": tables,
        "bytes": {
            "rings": status.ring_bytes * len(status.log_memories),
            "write_ahead_logs": _bytes_below(data_dir / "logs"),
            "sealed": sum(topic["sealed_bytes"] for topic in topics),
            "cold_cache": _bytes_below(data_dir / "cache"),
        },
    }


def open_transactions(data_dir: Path) -> list[OpenTransaction]:
    """The open transactions, the oldest first; none where the store cannot be read."""
    from smq.app.supervisor import timeline  # noqa: PLC0415  (It exists on Linux only.)

    now_ms = timeline.present(data_dir).now_ms
    try:
        with closing(open_overview(data_dir / "store.sqlite")) as overview:
            found = groupby(overview.open_parts(), itemgetter(0, 1, 2))
            return [
                OpenTransaction(
                    name,
                    producer_id,
                    (now_ms - started_ms) / 1000,
                    [(each.topic, each.partition) for each in parts],
                )
                for (name, producer_id, started_ms), parts in found
            ]
    except StoreError:
        return []


def _logs(memories: list[LogMemory], window_s: float) -> list[dict[str, Any]]:
    """Each log's counters since the broker's start, and their rates over the window."""
    before = [counters_of(memory) for memory in memories]
    sleep(window_s)
    logs = []
    for log, (memory, old) in enumerate(zip(memories, before, strict=True)):
        counters = counters_of(memory)
        rates = {name: round((counters[name] - old[name]) / window_s) for name in COUNTERS}
        tail, start = int(memory.words[words.WORD_TAIL]), int(memory.words[words.WORD_RING_START])
        room = room_of(memory.words)
        logs.append(
            {
                "log": log,
                "counters": counters,
                "per_s": rates,
                "bytes_in_ring": tail - start,
                "wal_bytes_max": room.limit_bytes,
                "wal_room_bytes": room.bytes,
                "sealing": pace(room.bytes, room.limit_bytes),
            }
        )
    return logs


def _stored(
    data_dir: Path, memories: list[LogMemory]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Topics: sealed bytes from the manifest, unsealed ones from shared memory. Lake tables."""
    rows = {
        int(row[words.P_NUMBER]): row
        for memory in memories
        for row in memory.partitions[: int(memory.words[words.WORD_PARTITION_COUNT])]
    }
    store = data_dir / "store.sqlite"
    if not store.exists():
        return [], []
    with open_manifest(store) as manifest:
        topics = manifest.topics()
        tables = table_facts(data_dir, manifest, topics, wall_ms())
        return [_topic(topic, manifest, rows) for topic in topics], [t._asdict() for t in tables]


def _topic(topic: Topic, manifest: Manifest, rows: dict[int, np.ndarray]) -> dict[str, Any]:
    known = [rows[number] for number in topic.partition_numbers if number in rows]
    sealed = [manifest.stored(number) for number in topic.partition_numbers]
    return {
        "name": topic.name,
        "partitions": topic.partition_count,
        "records": sum(int(row[words.P_HIGH_WATERMARK] - row[words.P_LOG_START]) for row in known),
        "unsealed_bytes": sum(int(row[words.P_UNSEALED_BYTES]) for row in known),
        "sealed_bytes": sum(size for _, size in sealed),
        "segments": sum(count for count, _ in sealed),
        "untyped_records": sum(map(manifest.untyped, topic.partition_numbers)),
    }


def _bytes_below(root: Path) -> int:
    """Disk usage of all files below a directory."""
    return sum(map(_file_bytes, _files_below(root)))


def _files_below(root: Path) -> Iterator[Path]:
    for directory, _, names in os.walk(root):
        for name in names:
            yield Path(directory, name)


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # Recycled or swept meanwhile.
        return 0
