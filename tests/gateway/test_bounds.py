"""No request holds a loop for long, and none makes a process grow much: every API and version.

The newest version of each API with the largest requests there are, the others with some portions.
Of the latter, work is counted, in calls of Python functions and of those in C: a count does not
depend on what else the machine does. A call takes a tenth of a microsecond or two. Counting takes
longer than the work: of the largest requests only memory and time are looked at.
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from gateway.apis.table import APIS, Api, Where
from gateway.context import Ask, Relay, Wait
from gateway.coordinator_context import Ticket
from gateway.coordinator_dispatch import dispatch as dispatch_in_coordinator
from gateway.dispatch import dispatch
from gateway.parts import Parts
from shm.kernels.base.words import DURABILITY_OS
from smq.model.errors import PeerError
from smq.shard.checks import TurnRoom
from smq.shard.produce import Produced
from smq.shard.references import References
from smq.shard.unfinished import Unfinished
from smq.shard.validation import INFLATED_BYTES_MAX, Validation
from smq.store.rows import CommittedOffset
from smq.wire.internal.form import Failed
from smq.wire.internal.frames import Relayed
from tests.gateway.coordinator_bench import ASKER, NODES, CoordinatorBench
from tests.gateway.groups import join_request, make_topic
from tests.gateway.largest import NOTHING, Names, largest, worst_contents
from tests.gateway.shard_api_bench import ShardBench, sent
from tests.shard import shard_bench
from tests.shard.shard_bench import NOW, NOW_MS, Producer, batch, new_shard, topic
from tests.shard.test_references import FakePayloads

MiB = 1024 * 1024
CALLS_MAX = 80_000  # Ten milliseconds, and then some.
SECONDS_MAX = 0.2  # Of the thread: what is done within one call, at a twentieth of the speed.
ATTEMPTS = 4
PARTITIONS, GROUPS = 900, 300
ZSTD_FROM = 7  # The version of Produce.
LANE_BYTES = 3 * INFLATED_BYTES_MAX  # A batch, and the pieces that are joined to it.
# Of requests in all versions but the newest of each API: several portions, and parts of answers.
ELEMENTS = 700


class Meter:
    """What is done while it runs: the most of any one step, and what is held at most."""

    def __init__(self, *, counts: bool) -> None:
        self._counts = counts  # Else it only looks at time and memory: counting takes long.
        self.calls_max, self.seconds_max, self.grown = 0, 0.0, 0
        self._calls = 0

    def _count(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in {"call", "c_call"}:
            self._calls += 1

    def step(self, work: Callable[[], Any]) -> Any:
        """Do some work of one turn."""
        self._calls, began = 0, time.thread_time()
        if self._counts:
            sys.setprofile(self._count)
        try:
            return work()
        finally:
            sys.setprofile(None)
            self.seconds_max = max(self.seconds_max, time.thread_time() - began)
            self.calls_max = max(self.calls_max, self._calls)

    def run(self, work: Callable[["Meter"], None]) -> None:
        """Do all of it."""
        gc.disable()  # As in shards, which collect in idle moments.
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        try:
            work(self)
        except PeerError:
            pass
        finally:
            self.grown = tracemalloc.get_traced_memory()[1] - before
            tracemalloc.stop()
            gc.enable()

    @property
    def has_taken_long(self) -> bool:
        """Whether a step was slow: itself, or the machine."""
        return self.seconds_max > SECONDS_MAX

    def check(self, what: str, request_bytes: int, lane_bytes: int = 0) -> None:
        """It has kept to the bounds; `lane_bytes` are a lane's, for all requests together."""
        said = f"{what}, {request_bytes} bytes"
        assert self.calls_max <= CALLS_MAX, f"{said}: {self.calls_max} calls in a turn"
        assert not self.has_taken_long, f"{said}: {self.seconds_max} s in a turn"
        assert self.grown <= 4 * request_bytes + MiB + lane_bytes, (
            f"{said}: grown by {self.grown} bytes"
        )


def measured(work: Callable[[Meter], None], *, counts: bool) -> Meter:
    """What some work takes. Done again when that was long: the machine may have been busy."""
    for _ in range(ATTEMPTS):
        meter = Meter(counts=counts)
        meter.run(work)
        if not meter.has_taken_long:
            break
    return meter


def nothing_passes() -> None:
    """What happens between two turns of a shard."""


def finish(meter: Meter, parts: Parts, between: Callable[[], object] = nothing_passes) -> None:
    """Take the steps of an answer, each in a turn of its own."""
    while not meter.step(parts.step):
        meter.step(between)
        if isinstance(parts.pending, Ask):
            ask = parts.pending
            nothing = [Failed("it is away")] * len(ask.questions)
            parts.add(meter.step(lambda: ask.then(nothing)))  # noqa: B023
        elif isinstance(parts.pending, Wait):
            parts.add(parts.pending.attempt(is_last=True))
        elif isinstance(parts.pending, Relay):
            return
    meter.step(lambda: parts.written().framed())


def asked_of_shard(meter: Meter, bench: ShardBench, request: bytes) -> None:
    asked = meter.step(lambda: dispatch(memoryview(request), bench.shard, NOW))
    result = asked.result
    if isinstance(result, Parts):
        finish(meter, result)
        return
    if isinstance(result, Wait):
        result = meter.step(lambda: asked.result.attempt(is_last=True))
    while isinstance(result, Ask):
        ask = result
        result = meter.step(lambda: ask.then([Failed("it is away")] * len(ask.questions)))  # noqa: B023
    if not isinstance(result, Relay):
        meter.step(lambda: sent(asked._replace(result=result)))


def asked_of_coordinator(meter: Meter, bench: CoordinatorBench, request: bytes) -> None:
    question = Relayed(1, ASKER, memoryview(request))
    asked = meter.step(
        lambda: dispatch_in_coordinator(question, bench.coordinator, NODES, bench.now, 1)
    )
    if isinstance(asked.response, Parts):
        finish(meter, asked.response, lambda: bench.coordinator.offsets.tick(bench.now))
    elif asked.response is not None:
        meter.step(lambda: asked.origin.encode(asked.response))
    groups, transactions = bench.coordinator.groups, bench.coordinator.transactions
    for answer in (*groups.take_answers(), *transactions.take_answers()):
        ticket = answer.ticket  # type: ignore[attr-defined]
        assert isinstance(ticket, Ticket)
        meter.step(lambda: asked.origin.encode(ticket.respond(answer.answer)))  # type: ignore[attr-defined]  # noqa: B023


def versions(where: Where) -> list[Any]:
    return [
        pytest.param(
            api,
            version,
            id=f"{api.name}-{version}",
            marks=[pytest.mark.slow] if version == api.versions[-1] else [],
        )
        for api in APIS
        if api.where is where
        for version in api.versions
    ]


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> ShardBench:
    wide = topic("wide", range(1, PARTITIONS + 1))
    bench = ShardBench(tmp_path_factory.mktemp("shard"), wide)
    bench.appender.append("wide", 0, batch(b"a", b"b"))
    return bench


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorBench]:
    bench = CoordinatorBench(tmp_path_factory.mktemp("coordinator") / "store.sqlite")
    wide = make_topic(bench, "wide", PARTITIONS)
    for number in range(GROUPS):
        bench.ask("JoinGroup", 9, join_request(group_id=f"group-{number}"))
    offsets = {number: CommittedOffset(7, 1, "", 0) for number in wide.partition_numbers}
    bench.coordinator.store.commit_offsets("wide", offsets)
    producer = bench.coordinator.transactions.begin("wide", 60_000, None, bench.now)
    assert producer == (0, 0), "what requests say that are made by the table"
    bench.coordinator.transactions.add(
        "wide",
        producer,
        bench.now,
        numbers=frozenset(wide.partition_numbers),
        groups=frozenset({"wide"}),
    )
    yield bench
    bench.close()


def check(api: Api, version: int, known: UUID, ask: Callable[[Meter, bytes], None]) -> None:
    names = Names("wide", known) if (api.versions[-1] - version) % 2 == 0 else NOTHING
    elements_max = None if version == api.versions[-1] else ELEMENTS
    for what, request in largest(api, version, names, elements_max):
        meter = measured(lambda meter: ask(meter, request), counts=elements_max is not None)  # noqa: B023
        meter.check(f"{api.name} {version}, {what}, {names.text!r}", len(request))


@pytest.mark.parametrize(("api", "version"), versions(Where.SHARD))
def test_no_request_holds_a_shard(shard: ShardBench, api: Api, version: int) -> None:
    known = shard.shard.catalog.by_name["wide"].id
    check(api, version, known, lambda meter, request: asked_of_shard(meter, shard, request))


@pytest.mark.parametrize(("api", "version"), versions(Where.COORDINATOR))
def test_no_request_holds_the_coordinator(
    coordinator: CoordinatorBench, api: Api, version: int
) -> None:
    known = coordinator.coordinator.topics.catalog.by_name["wide"].id

    def ask(meter: Meter, request: bytes) -> None:
        asked_of_coordinator(meter, coordinator, request)

    check(api, version, known, ask)


# --- Produce -------------------------------------------------------------------------------------


@pytest.fixture
def producer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Producer:
    monkeypatch.setattr(shard_bench, "RING_BYTES", 64 * MiB)  # More than any request brings.
    monkeypatch.setattr(shard_bench, "SEGMENT_BYTES", 32 * MiB)
    shard = new_shard(
        tmp_path,
        topic("one", configs={"smq.validate": "records"}),
        socket_request_max_bytes=64 * MiB,
    )
    room = TurnRoom()
    references = References(FakePayloads(), shard.topic_of, shard.config, room)
    return Producer(shard, Validation(references, shard.topic_of, shard.config, room))


def produce(meter: Meter, producer: Producer, data: np.ndarray) -> None:
    """Take a request in steps; what lanes do takes none of the loop's time."""
    shard = producer.shard
    producer.room.begin_turn()
    run = partial(producer.producing.run, data, 0, len(data), shard.directory, NOW)
    produced = meter.step(run)
    if produced.left is None:
        return
    request_left = Unfinished(shard, producer.in_steps, data, produced.left)
    outcome = None
    while not isinstance(outcome, Produced):
        producer.room.begin_turn()
        for log in shard.logs.values():  # As each turn ends.
            assert log.write()
            shard.publish(log, DURABILITY_OS)
        outcome = meter.step(lambda: request_left.step(NOW))
        if outcome is not None and not isinstance(outcome, Produced):
            request_left.told(outcome())


@pytest.mark.slow
@pytest.mark.parametrize("version", [3, 12])
def test_no_produce_holds_a_shard(producer: Producer, version: int) -> None:
    """data fault 11: a kilobyte of compressed zeros held a shard for as long as it inflates."""
    for what, request in worst_contents("one", NOW_MS, version):
        if version < ZSTD_FROM and "ZSTD" in what:
            continue
        data = np.frombuffer(bytearray(request), np.uint8)
        meter = measured(lambda meter: produce(meter, producer, data), counts=False)  # noqa: B023
        lane_bytes = 0 if what in {"plain", "many", "null"} else LANE_BYTES
        meter.check(f"Produce {version}, {what}", len(request), lane_bytes)
