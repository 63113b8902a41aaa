"""No content of a request holds a loop for 10 ms, or makes a process grow much: every API.

Time is the thread's: each step is taken by itself, and counts as long as in the best of some tries,
since what else the machine does only adds to it. What it does at the same time also slows the
thread itself, so a step fails only beyond three times its bound.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gateway.apis.table import APIS, Api, Where
from gateway.context import Ask, Later, Relay, Wait
from gateway.coordinator_dispatch import dispatch as dispatch_in_coordinator
from gateway.dispatch import dispatch
from gateway.parts import Parts
from smq.coordinator.group_events import Commit
from smq.model.errors import PeerError
from smq.security.caller import Caller
from smq.shard.client_metrics import INFLATED_BYTES_MAX
from smq.store.rows import CommittedOffset
from smq.wire.internal.form import Failed
from smq.wire.internal.frames import Relayed
from smq.wire.markers import Marker
from tests.gateway.contents import CONTENTS, World, request_of
from tests.gateway.coordinator_bench import ASKER, NODES, CoordinatorBench
from tests.gateway.groups import join_request, make_topic
from tests.gateway.shard_api_bench import ShardBench, sent
from tests.shard import shard_bench
from tests.shard.shard_bench import NOW, batch, produce_request, topic
from tests.shard.transactional_bench import (
    Producers,
    transactional_batch,
    transactional_request,
)

MiB = 1024 * 1024
STEP_SECONDS_MAX = 0.010
SLOWED_TIMES = 3
TRIES = 4
PARTITIONS, PRODUCERS, GROUPS = 900, 2000, 300
LONG_NAMES, LONG = 40, "x" * 32_000
# What is held once for all requests together: what a lane inflates, a checkpoint's copy; of a Fetch
# what is lent to the socket, some hundred bytes a partition (gateway.fetch.portions). Each topic
# that is created is answered with all its configs, as Kafka does: 2.6 KB.
BESIDE = {
    "PushTelemetry": 3 * INFLATED_BYTES_MAX,
    "DeleteRecords": 4 * MiB,
    "Fetch": PARTITIONS * 500,
    "CreateTopics": 900 * 2600,
    "ListGroups": 3 * LONG_NAMES * len(LONG),  # The names are the answer.
    "ListTransactions": 3 * LONG_NAMES * len(LONG),
}


class Meter:
    """What each step takes, as the steps follow each other."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def step(self, work: Callable[[], Any]) -> Any:
        """Do some work of one turn."""
        began = time.thread_time()
        try:
            return work()
        finally:
            self.seconds.append(time.thread_time() - began)


def answers_to(ask: Ask) -> list[Any]:
    """What lanes say, which take nothing of the loop's time; the sealer is away."""
    answers: list[Any] = []
    for each in ask.questions:
        if isinstance(each, Later):
            each.begin(answers.append)
        else:
            answers.append(Failed("it is away"))
    return answers


def asked(ask: Callable[[Meter], None]) -> Meter:
    """One request, in steps."""
    meter = Meter()
    with suppress(PeerError):
        ask(meter)
    return meter


def check(what: str, request: bytes, beside_bytes: int, ask: Callable[[Meter], None]) -> None:
    """Both bounds. What requests do may last: tries that have other steps are others."""
    gc.disable()  # As in shards, which collect in idle moments.
    try:
        best = asked(ask).seconds
        for _ in range(TRIES - 1):
            if max(best) <= STEP_SECONDS_MAX:
                break
            again = asked(ask).seconds
            if len(again) == len(best):
                best = [min(pair) for pair in zip(best, again, strict=True)]
            elif max(again) < max(best):
                best = again
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        asked(ask)
        grown = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    said = f"{what}, {len(request)} bytes"
    deadline = SLOWED_TIMES * STEP_SECONDS_MAX
    assert max(best) <= deadline, f"{said}: {max(best):.4f} s in one of {len(best)} steps"
    assert grown <= 4 * len(request) + MiB + beside_bytes, f"{said}: grown by {grown} bytes"


def those(where: Where) -> list[Api]:
    return [each for each in APIS if each.where is where]


def name_of(api: Api) -> str:
    return api.name


# --- shards ---------------------------------------------------------------------------------------


class QuickProducers(Producers):
    """Producers whose turns end unchecked: there are many."""

    def end_turn(self) -> None:
        for log in self.shard.logs.values():
            assert log.write()
            for level in range(3):
                self.shard.publish(log, level)


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> tuple[ShardBench, World]:
    """A topic with what others may have left: producers, aborted transactions that overlap."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_bench, "RING_BYTES", 16 * MiB)
        patch.setattr(shard_bench, "SEGMENT_BYTES", 8 * MiB)
        wide = topic("wide", range(1, PARTITIONS + 1))
        bench = ShardBench(tmp_path_factory.mktemp("shard"), wide)
    for index in range(PARTITIONS):
        bench.appender.append("wide", index, batch(b"a", b"b"))
    producers = QuickProducers(bench.shard)
    for own in range(PRODUCERS):
        producers.write([b"x"], (own, 0), name="wide")
        made = transactional_batch(b"x", producer=(own, 0))
        producers.send(transactional_request({"wide": {1 + own % 100: made}}))
    for own in range(PRODUCERS):
        for number in (1, 2 + own % 100):
            producers.end(number, Marker(own, 0, committed=False, coordinator_epoch=1))
    bench.shard.client_metrics.take({"s": {"metrics": "*", "interval.ms": "1000"}})
    instance = bench.shard.client_metrics.subscribe(UUID(int=100), "client", Caller(), 10**6)
    partitions = range(PARTITIONS)
    return (
        bench,
        World(
            "wide",
            wide.id,
            partitions,
            instance_id=instance.id,
            subscription_id=instance.subscription_id,
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize("api", those(Where.SHARD), ids=name_of)
def test_no_content_holds_a_shard(shard: tuple[ShardBench, World], api: Api) -> None:
    bench, world = shard
    times = count(NOW.monotonic_ms, 1_000_000)

    def ask(meter: Meter, request: bytes) -> None:
        now = NOW._replace(monotonic_ms=next(times))
        asked = meter.step(lambda: dispatch(memoryview(request), bench.shard, now))
        result = asked.result
        if isinstance(result, Wait):
            result = meter.step(lambda: asked.result.attempt(is_last=True))
        if isinstance(result, Parts):
            finish(meter, result)
            return
        result = said_to(meter, result)
        if not isinstance(result, Relay):
            meter.step(lambda: sent(asked._replace(result=result)))

    of_api(api, world, ask)


def test_a_search_for_handles_holds_no_shard(tmp_path: Path) -> None:
    """A portion counted partitions, and each of their batches took a call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_bench, "RING_BYTES", 64 * MiB)
        patch.setattr(shard_bench, "SEGMENT_BYTES", 32 * MiB)
        inline = topic("inline", range(1, 7), {"smq.reference.delivery": "inline"})
        bench = ShardBench(tmp_path, inline)
    request = produce_request({"inline": dict.fromkeys(range(6), batch(b"x"))})
    for turn in range(12_000):
        bench.appender.run(request)
        if turn % 100 == 0:
            bench.appender.end_turn()
    bench.appender.end_turn()
    rows = [{"partition": p, "partition_max_bytes": 50 * MiB} for p in range(6)]
    said = {"max_bytes": 50 * MiB, "topics": [{"topic_id": inline.id, "partitions": rows}]}
    asked = request_of("Fetch", 17, said)
    found: list[int] = []

    def ask(meter: Meter) -> None:
        result = meter.step(lambda: dispatch(memoryview(asked), bench.shard, NOW)).result
        [response] = result.responses
        found.append(sum(bool(each.records) for each in response.partitions))

    check("Fetch", asked, 50 * MiB, ask)
    assert min(found) > 0


def said_to(meter: Meter, result: Any) -> Any:
    """What comes of a result once all is answered that it asks."""
    while isinstance(result, Ask):
        then, answers = result.then, answers_to(result)
        result = meter.step(lambda: then(answers))  # noqa: B023
    return result


def finish(meter: Meter, parts: Parts) -> None:
    while not meter.step(parts.step):
        if isinstance(parts.pending, Ask):
            response = said_to(meter, parts.pending)
            meter.step(lambda: parts.add(response))  # noqa: B023
        elif isinstance(parts.pending, Wait):
            parts.add(parts.pending.attempt(is_last=True))
        elif isinstance(parts.pending, Relay):
            return
    meter.step(lambda: parts.written().framed())


def of_api(api: Api, world: World, ask: Callable[[Meter, bytes], None]) -> None:
    """All contents of an API, in its newest version."""
    contents = CONTENTS[api.name]
    if isinstance(contents, str):
        pytest.skip(contents)
    for what, said in contents(world):
        request = request_of(api.name, api.versions[-1], said)
        if len(request) > api.bounds.bytes_max:
            continue  # It is refused unread.
        beside = BESIDE.get(api.name, 0)
        check(f"{api.name}: {what}", request, beside, lambda meter: ask(meter, request))  # noqa: B023


# --- the coordinator ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def coordinator(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[CoordinatorBench, World]]:
    """A topic, groups, and a transaction that has all of it."""
    bench = CoordinatorBench(tmp_path_factory.mktemp("coordinator") / "store.sqlite")
    wide = make_topic(bench, "wide", PARTITIONS)
    groups = [f"group-{number}" for number in range(GROUPS)]
    for group_id in groups:
        bench.ask("JoinGroup", 9, join_request(group_id=group_id))
    offsets = {number: CommittedOffset(7, 1, "m" * 40, 0) for number in wide.partition_numbers}
    for group_id in ("committed", *groups):
        bench.store.commit_offsets(group_id, offsets)
        if group_id == "committed":
            bench.coordinator.groups.handle(group_id, Commit("", None, -1), bench.now)
    transactions = bench.coordinator.transactions
    producer = transactions.begin("wide", 60_000, None, bench.now)
    assert producer == (0, 0)
    for number in range(GROUPS):
        transactions.begin("a" * 200 + str(number), 60_000, None, bench.now)
    for number in range(LONG_NAMES):
        transactions.begin(LONG + str(number), 60_000, None, bench.now)
        bench.coordinator.groups.handle(LONG + str(number), Commit("", None, -1), bench.now)
    numbers = frozenset(wide.partition_numbers)
    transactions.add("wide", producer, bench.now, numbers=numbers, groups=frozenset({"alone"}))
    for number in range(50):  # Their offsets wait for a decision.
        bench.store.transactions.put_offsets("a" * 200 + str(number), "committed", offsets)
    bench.store.commit()
    yield bench, World("wide", wide.id, range(PARTITIONS), tuple(groups), "wide")
    bench.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "api", [each for each in APIS if each.where is Where.COORDINATOR], ids=name_of
)
def test_no_content_holds_the_coordinator(
    coordinator: tuple[CoordinatorBench, World], api: Api
) -> None:
    bench, world = coordinator

    def ask(meter: Meter, request: bytes) -> None:
        question = Relayed(1, ASKER, memoryview(request))
        asked = meter.step(
            lambda: dispatch_in_coordinator(question, bench.coordinator, NODES, bench.now, 1)
        )
        if isinstance(asked.response, Parts):
            finish(meter, asked.response)
        elif asked.response is not None:
            meter.step(lambda: asked.origin.encode(asked.response))
        bench.coordinator.groups.take_answers()
        bench.coordinator.transactions.take_answers()

    of_api(api, world, ask)


def test_each_api_has_contents_or_a_reason() -> None:
    assert CONTENTS.keys() == {api.name for api in APIS}
