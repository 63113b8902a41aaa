"""A shard without processes: its logs in memory and a directory, its syncs held by the test."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from shm.kernels.base.words import SPACE_UNLIMITED
from shm.segment import LogMemory
from smq.log.files.background import InlineBackground
from smq.log.files.disk import OsDisk
from smq.log.files.segment_files import WalLimits
from smq.log.log import Log
from smq.log.recovery import open_log
from smq.log.sync import InlineSyncer, Syncer
from smq.model.catalog import Catalog, Node, Topic
from smq.model.config import Config
from smq.model.now import Now
from smq.security.access import AccessView
from smq.shard.checks import TurnRoom
from smq.shard.produce import Charge, Left, Produced, Producing
from smq.shard.references import Handles
from smq.shard.shard import Shard
from smq.shard.unfinished import HeldBack, Unfinished
from smq.wire.codec import Writer
from smq.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    read_produce_response,
    write_produce_request,
)
from smq.wire.headers import RequestHeader, read_response_header, write_request_header
from smq.wire.internal.transactions import AddPartitions
from smq.wire.records import Record, write_batch

NOW_MS, DAY_MS = 1_600_000_000_000, 86_400_000  # Wall time.
MONOTONIC_MS = 70_000_000_000
NOW = Now(MONOTONIC_MS, NOW_MS)
RING_BYTES, SEGMENT_BYTES = 256 * 1024, 64 * 1024
BOOT_ID, SECRET = b"a boot of tests.", b"a secret of ours"
PRODUCE, PRODUCE_VERSION = 0, 9
NODES = [Node(1, "one", 9092, 7), Node(2, "two", 9093, 8)]


class HeldSyncer(InlineSyncer):
    """Syncs when the test says so, as a slow disk does."""

    def __init__(self, memory: LogMemory) -> None:
        super().__init__(memory, OsDisk())
        self._held: list[tuple[int, int]] = []

    def post(self, fd: int, upto: int) -> bool:
        self._held.append((fd, upto))
        return True

    def release(self) -> None:
        held, self._held = self._held, []
        for fd, upto in held:
            super().post(fd, upto)


def topic(
    name: str,
    numbers: range = range(1, 2),
    configs: Mapping[str, str] | None = None,
    logs: tuple[int, ...] | None = None,
) -> Topic:
    """A topic with partitions of these numbers, in log 0 unless others are given."""
    key = UUID(int=numbers.start)
    return Topic(name, key, tuple(numbers), logs or (0,) * len(numbers), configs or {})


def catalog(*topics: Topic) -> Catalog:
    return Catalog("a-cluster", 1, {each.name: each for each in topics})


def new_log(
    directory: Path,
    number: int = 0,
    generation: int = 0,
    syncer: Syncer | None = None,
    bytes_max: int = SPACE_UNLIMITED,
) -> Log:
    memory = LogMemory.in_process(number, RING_BYTES, SEGMENT_BYTES, 1024)
    log, _ = open_log(
        memory,
        directory / str(number),
        OsDisk(),
        syncer or InlineSyncer(memory, OsDisk()),
        InlineBackground(),
        limits=WalLimits(SEGMENT_BYTES, bytes_max),
        generation=generation,
        boot_id=BOOT_ID,
        producers_key=bytes(range(16)),
        now_ms=MONOTONIC_MS,
    )
    return log


def new_shard(
    directory: Path,
    *topics: Topic,
    logs: int = 1,
    access: AccessView | None = None,
    **config: int,
) -> Shard:
    """A shard that leads the topics; its configuration as given."""
    settings = Config(**{"socket_request_max_bytes": 1 << 20, "wal_bytes_max": 4 << 30, **config})  # type: ignore[arg-type]
    bytes_max = settings.wal_bytes_max
    opened = {number: new_log(directory, number, bytes_max=bytes_max) for number in range(logs)}
    shard = Shard(1, settings, opened, lambda _: NODES, SECRET, access)
    shard.take_catalog(catalog(*topics), 1)
    shard.invariants()
    return shard


def batch(*values: bytes, first_ms: int = NOW_MS) -> bytes:
    records = [Record(i, first_ms + i, None, value, ()) for i, value in enumerate(values)]
    return bytes(write_batch(records))


def produce_request(
    data: Mapping[str, Mapping[int, bytes]], acks: int = -1, correlation: int = 1
) -> bytes:
    """A Produce request with its size: batches by topic and partition."""
    writer = Writer()
    write_request_header(RequestHeader(PRODUCE, PRODUCE_VERSION, correlation, "test"), writer)
    topics = [
        TopicProduceData(
            name=name,
            partition_data=[
                PartitionProduceData(index=index, records=records)
                for index, records in partitions.items()
            ],
        )
        for name, partitions in data.items()
    ]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
    write_produce_request(request, PRODUCE_VERSION, writer)
    body = writer.to_bytes()
    return len(body).to_bytes(4) + body


def responses(answers: bytes) -> list[tuple[int, ProduceResponse]]:
    """Correlation ids and Produce responses of what would go to a socket."""
    found = []
    while answers:
        size = int.from_bytes(answers[:4])
        body, answers = answers[4 : 4 + size], answers[4 + size :]
        correlation, at = read_response_header(body, 0, PRODUCE, PRODUCE_VERSION)
        found.append((correlation, read_produce_response(body, at, PRODUCE_VERSION)))
    return found


class Producer:
    """Produces into a shard: what is left is finished in steps.

    steps   of the last buffer
    jobs    that its steps asked for
    """

    def __init__(self, shard: Shard, handles: Handles | None = None, **others: Any) -> None:
        needs = shard.logs, shard.config, shard.drain
        given = () if handles is None else (handles,)
        self.shard, self.room = shard, getattr(handles, "room", TurnRoom())
        self.producing = Producing(*needs, *given, **others)
        self.in_steps = Producing(*needs, *given, **others, in_steps=True)
        self.steps = self.jobs = 0

    def run(self, received: bytes, now: Now = NOW, charge: Charge | None = None) -> Produced:
        """Take a buffer's requests, without finishing what is left."""
        data = np.frombuffer(bytearray(received), np.uint8)
        self.steps = self.jobs = 0
        self.room.begin_turn()
        return self.producing.run(data, 0, len(data), self.shard.directory, now, charge)

    def answers(self, received: bytes, now: Now = NOW) -> bytes:
        """Take a buffer's requests one after the other; their answers."""
        answers, at = b"", 0
        while at < len(received):
            produced = self.run(received[at:], now)
            assert produced.consumed_to > 0
            answers += bytes(produced.answers)
            if produced.left is not None:
                answers += bytes(self.finished(received[at:], produced.left, now).answers)
            at += produced.consumed_to
        return answers

    def finished(self, received: bytes, left: Left, now: Now = NOW) -> Produced:
        """Finish what is left of a buffer."""
        data = np.frombuffer(bytearray(received[left.start : left.end]), np.uint8)
        return self.stepped(Unfinished(self.shard, self.in_steps, data, left), now)

    def stepped(self, unfinished: Unfinished, now: Now = NOW) -> Produced:
        """Take all steps of a request."""
        while True:
            self.steps += 1
            self.room.begin_turn()
            outcome = unfinished.step(now)
            if isinstance(outcome, Produced):
                return outcome
            if outcome is not None:
                assert not isinstance(outcome, AddPartitions | HeldBack)
                self.jobs += 1
                unfinished.told(outcome())


class Appender:
    """Produces into a shard and ends the turn."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.producing = Producing(shard.logs, shard.config, shard.drain)

    def run(self, received: bytes, now: Now = NOW) -> Produced:
        data = np.frombuffer(bytearray(received), np.uint8)
        return self.producing.run(data, 0, len(data), self.shard.directory, now)

    def append(self, name: str, partition: int, records: bytes) -> int:
        """Append a batch and show it at all levels; its base offset."""
        produced = self.run(produce_request({name: {partition: records}}))
        [(_, response)] = responses(bytes(produced.answers))
        [answer] = response.responses[0].partition_responses
        assert answer.error_code == 0
        self.end_turn()
        return int(answer.base_offset)

    def end_turn(self) -> None:
        for log in self.shard.logs.values():
            assert log.write()
            log.want_sync()
            for level in range(3):
                self.shard.publish(log, level)
            log.background.collect()
        self.shard.invariants()
