"""The kernel and gateway.apis.fetch send the same bytes; the kernel leaves the rest."""

from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gateway.context import Wait
from gateway.dispatch import dispatch
from gateway.quick_fetch import QuickFetch
from shm.kernels.base.words import (
    COUNTER_BYTES_OUT,
    COUNTER_FETCH_REQUESTS,
    FLAG_FETCH_LEFT,
    FLAG_TAIL,
    P_FLAGS,
    P_LED_FROM,
)
from shm.kernels.request.fetch import PLACES_MAX, RECORDS_BYTES_MAX
from smq.security.caller import Caller
from smq.shard.loans import LentBatches, Loan
from smq.shard.shard import Shard
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.gateway.coordinator_bench import relayed
from tests.gateway.shard_api_bench import EPOCH, ShardBench, joined, sent
from tests.shard.shard_bench import NOW, batch, new_shard, topic

ONE, TWO, LARGE = topic("one", range(1, 4)), topic("two", range(4, 5)), topic("large", range(5, 7))
TOPICS = {each.name: each for each in (ONE, TWO, LARGE, topic("small", range(7, 8)))}
SMALL = batch(b"x" * 1000)
SMALL_COUNT = RECORDS_BYTES_MAX // len(SMALL) + 1
VERSIONS = range(4, 19)
NOBODY = UUID(int=99)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> ShardBench:
    """Batches of 1 to 3 records in `one` 0 and 1 and in `two`; `one` 2 is empty. In `large` more
    than is copied, in `small` too."""
    bench = ShardBench(tmp_path_factory.mktemp("log"), *TOPICS.values())
    for i in range(30):
        values = [b"%d" % i * (i % 7)] * (1 + i % 3)
        bench.appender.append(*[("one", 0), ("one", 1), ("two", 0)][i % 3], batch(*values))
    for i in range(8):
        bench.appender.append("large", i % 2, batch(b"x" * (RECORDS_BYTES_MAX // 3)))
    for _ in range(SMALL_COUNT):
        bench.appender.append("small", 0, SMALL)
    return bench


def asked(topics: list[FetchTopic], **fields: Any) -> FetchRequest:
    return FetchRequest(topics=topics, **{"max_wait_ms": 500, "min_bytes": 1} | fields)


def fetch_of(name: str, *partitions: FetchPartition) -> FetchTopic:
    found = TOPICS.get(name)
    return FetchTopic(
        topic=name, topic_id=found.id if found else NOBODY, partitions=list(partitions)
    )


def partition(index: int = 0, offset: int = 0, **fields: Any) -> FetchPartition:
    return FetchPartition(
        partition=index, fetch_offset=offset, **{"partition_max_bytes": 1 << 20} | fields
    )


def quick_fetch(shard: Shard) -> QuickFetch:
    return QuickFetch(
        shard, lambda request, caller, loan: dispatch(request, shard, NOW, caller, loan).result
    )


class Both:
    """One request, answered by the kernel and by the handler."""

    def __init__(self, bench: ShardBench, version: int, request: FetchRequest) -> None:
        self.data = bytearray(relayed("Fetch", version, request).request)
        self.shard = bench.shard
        self.quick = quick_fetch(bench.shard)
        asked = np.frombuffer(self.data, np.uint8), 0, len(self.data)
        self.outcome = self.quick.run(*asked, Caller(), Loan())
        self.by_hand = dispatch(memoryview(self.data), bench.shard, NOW)

    @property
    def answer(self) -> bytes:
        """What both say; to be asked once, for what is lent is sent then."""
        assert isinstance(self.outcome, list)
        data = joined(self.outcome)
        assert data == sent(self.by_hand)
        return data


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_fetch_of_records_in_the_ring_is_answered_by_the_kernel(
    bench: ShardBench, version: int, isolation_level: int
) -> None:
    topics = [
        fetch_of("one", partition(0, 3), partition(1, 0), partition(2, 0)),
        fetch_of("two", partition(0, 19)),
    ]
    answer = Both(bench, version, asked(topics, isolation_level=isolation_level)).answer
    assert len(answer) > 200


_partitions = st.builds(
    partition,
    st.sampled_from([0, 0, 0, 1, 2, 3, -1]),
    st.sampled_from([0, 0, 1, 4, 5, 10, 19, 20, 21, -1]),
    current_leader_epoch=st.sampled_from([-1, -1, EPOCH, EPOCH, EPOCH - 1, EPOCH + 1]),
    last_fetched_epoch=st.sampled_from([-1] * 7 + [EPOCH]),
    partition_max_bytes=st.sampled_from([1 << 20, 1 << 20, 100, 1, 0, -1]),
)
_requests = st.builds(
    asked,
    st.lists(
        st.builds(
            lambda name, partitions: fetch_of(name, *partitions),
            st.sampled_from(["one", "one", "two", "two", "large", "none", ""]),
            st.lists(_partitions, max_size=3),
        ),
        max_size=3,
    ),
    max_wait_ms=st.sampled_from([0, 500]),
    min_bytes=st.sampled_from([0, 1, 1, 200, 1 << 20]),
    max_bytes=st.sampled_from([1 << 30, 1 << 30, 300, 0, -1]),
    isolation_level=st.sampled_from([0, 0, 1, 2]),
    session_epoch=st.sampled_from([-1, -1, 0, 1]),
    rack_id=st.sampled_from(["", "rack"]),
    replica_state=st.sampled_from([None, None, None, ReplicaState(replica_id=1)]),
)


@settings(deadline=None, max_examples=600)
@given(st.sampled_from(VERSIONS), _requests)
def test_the_kernel_answers_as_the_handler_or_leaves_the_request(
    bench: ShardBench, version: int, request: FetchRequest
) -> None:
    both = Both(bench, version, request)
    if isinstance(both.outcome, Wait):
        assert isinstance(both.by_hand.result, Wait)
        assert set(both.outcome.find_codes()) == set(both.by_hand.result.find_codes())
        assert both.outcome.timeout_ms == both.by_hand.result.timeout_ms
        is_last = both.outcome.attempt(is_last=True)
        last = both.by_hand.result.attempt(is_last=True)
        assert isinstance(is_last, list)
        assert joined(is_last) == sent(both.by_hand._replace(result=last))
    elif both.outcome is not None:
        assert both.answer


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(VERSIONS),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    st.integers(0, 200),
)
def test_cut_and_garbled_requests_are_left_or_answered_as_the_handler_does(
    bench: ShardBench, version: int, changes: list[tuple[int, int]], cut: int
) -> None:
    request = asked([fetch_of("one", partition(0, 3)), fetch_of("two", partition(0, 19))])
    data = bytearray(relayed("Fetch", version, request).request)
    for at, value in changes:
        data[at % len(data)] = value
    data = data[: max(1, len(data) - cut)]
    outcome = quick_fetch(bench.shard).run(
        np.frombuffer(data, np.uint8), 0, len(data), Caller(), Loan()
    )
    if isinstance(outcome, list):
        assert joined(outcome) == sent(dispatch(memoryview(data), bench.shard, NOW))


@pytest.mark.parametrize("version", [4, 12, 18])
def test_a_request_that_waits_is_answered_when_something_has_come(
    tmp_path: Path, version: int
) -> None:
    bench = ShardBench(tmp_path, ONE, TWO, LARGE)
    both = Both(bench, version, asked([fetch_of("one", partition(0, 0), partition(1, 0))]))
    assert isinstance(both.outcome, Wait)
    assert isinstance(both.by_hand.result, Wait)
    assert both.outcome.look([]) is None
    bench.appender.append("one", 1, batch(b"came"))
    response = both.by_hand.result.look([])
    answer = both.outcome.look([])
    assert isinstance(answer, list)
    assert joined(answer) == sent(both.by_hand._replace(result=response))


def test_a_request_that_waits_and_is_left_then_is_answered_by_hand(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path, ONE, TWO, LARGE)
    both = Both(bench, 12, asked([fetch_of("large", partition(0, 0))]))
    assert isinstance(both.outcome, Wait)
    for _ in range(SMALL_COUNT):
        bench.appender.append("large", 0, SMALL)
    response = both.outcome.look([])
    assert not isinstance(response, list)
    assert len(sent(both.by_hand._replace(result=response))) > RECORDS_BYTES_MAX


def test_a_request_that_has_waited_elsewhere_goes_on_until_its_deadline(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path, ONE, TWO, LARGE)
    both = Both(bench, 12, asked([fetch_of("one", partition(1, 0))]))
    assert isinstance(both.outcome, Wait)
    [code] = both.outcome.find_codes()
    wait = both.quick.resume(np.frombuffer(both.data, np.uint8), [int(code)], 77, Caller(), Loan())
    assert (wait.due_ns, wait.find_codes(), wait.look([code])) == (77, [code], None)
    bench.appender.append("one", 1, batch(b"came"))
    answer = wait.look([code])
    assert isinstance(answer, list)
    assert b"came" in joined(answer)


@pytest.mark.parametrize(
    "topics",
    [
        [fetch_of("small", partition(0, 0))],
        [fetch_of("one", *[partition(0, 0)] * (PLACES_MAX + 1))],
        [fetch_of("one", partition(0, 0), partition(0, 1))],
        [fetch_of("one", partition(0, 0)), fetch_of("one", partition(1, 0))],
        [fetch_of("none", partition(0, 0))],
        [],
    ],
    ids=[
        "many batches",
        "many partitions",
        "a partition twice",
        "a topic twice",
        "an unknown topic",
        "nothing",
    ],
)
def test_a_rare_fetch_is_left_to_the_handler(bench: ShardBench, topics: list[FetchTopic]) -> None:
    assert Both(bench, 12, asked(topics)).outcome is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("bytes_max", [1 << 30, 20_000, 40_000, 100_000])
def test_much_is_lent_within_the_limits(bench: ShardBench, version: int, bytes_max: int) -> None:
    topics = [
        fetch_of("one", partition(0, 3)),
        fetch_of("large", partition(0, 0, partition_max_bytes=60_000), partition(1, 1)),
        fetch_of("two", partition(0, 19)),
    ]
    both = Both(bench, version, asked(topics, max_bytes=bytes_max))
    assert both.answer
    assert isinstance(both.outcome, list)
    lent = [piece for piece in both.outcome if isinstance(piece, LentBatches)]
    assert bool(lent) == (bytes_max > RECORDS_BYTES_MAX)


def test_of_what_was_sent_in_part_the_rest_is_left(bench: ShardBench) -> None:
    request = asked([fetch_of("large", partition(0, 0), partition(1, 0))])
    both = Both(bench, 12, request)
    whole = both.answer
    for sent_bytes in [*range(0, len(whole), 977), len(whole) - 1]:
        assert joined(both.quick.answer(sent_bytes)) == whole[sent_bytes:]


def test_a_partition_of_which_python_is_to_say_is_left(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path, ONE, TWO, LARGE)
    bench.appender.append("one", 0, batch(b"x"))
    request = asked([fetch_of("one", partition(0, 0))])
    assert Both(bench, 12, request).answer
    [slot] = [each.slot for each in bench.shard.led() if each.number == 1]
    bench.shard.logs[0].partitions.table[slot, P_FLAGS] |= FLAG_FETCH_LEFT
    assert Both(bench, 12, request).outcome is None


def test_a_partition_is_left_below_its_leadership_and_where_another_log_leads_it(
    tmp_path: Path,
) -> None:
    bench = ShardBench(tmp_path, ONE, TWO, LARGE)
    bench.appender.append("one", 0, batch(b"x"))
    request = asked([fetch_of("one", partition(0, 0))])
    [slot] = [each.slot for each in bench.shard.led() if each.number == 1]
    row = bench.shard.logs[0].partitions.table[slot]
    row[P_LED_FROM] = 1
    assert Both(bench, 12, request).outcome is None
    row[P_LED_FROM] = 0
    assert Both(bench, 12, request).answer
    row[P_FLAGS] |= FLAG_TAIL
    assert Both(bench, 12, request).outcome is None


def test_a_shard_of_several_logs_leaves_everything(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, ONE, logs=2)
    data = bytearray(relayed("Fetch", 12, asked([fetch_of("one", partition())])).request)
    whole = np.frombuffer(data, np.uint8), 0, len(data)
    assert quick_fetch(shard).run(*whole, Caller(), Loan()) is None


def test_fetches_of_kernel_and_handler_are_counted_alike(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path, ONE, TWO, LARGE)
    size = len(batch(b"x"))
    bench.appender.append("one", 0, batch(b"x"))
    assert Both(bench, 12, asked([fetch_of("one", partition())])).answer
    words = bench.shard.logs[0].words
    assert (words[COUNTER_FETCH_REQUESTS], words[COUNTER_BYTES_OUT]) == (2, 2 * size)
