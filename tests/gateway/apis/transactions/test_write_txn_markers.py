"""WriteTxnMarkers: an administrator ends what hangs, and cannot fence our coordinator."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.context import Wait
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from smq.wire.markers import Marker
from tests.gateway.apis.rights import limit_caller
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic
from tests.shard.transactional_bench import Producers

E = ErrorCode
ME = (7, 3)
NUMBER = 1


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, topic("one", range(1, 3)))


@pytest.fixture
def producers(bench: ShardBench) -> Producers:
    return Producers(bench.shard)


def marking(producer: tuple[int, int] = ME, **fields: Any) -> WritableTxnMarker:
    marker: dict[str, Any] = {
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "topics": [WritableTxnMarkerTopic(name="one", partition_indexes=[0])],
    }
    return WritableTxnMarker(**(marker | fields))


def write(bench: ShardBench, producers: Producers, *markers: WritableTxnMarker) -> list[int]:
    """The code of each place, once the turn has ended."""
    answer = bench.ask("WriteTxnMarkers", 2, WriteTxnMarkersRequest(markers=list(markers)))
    if isinstance(answer, Wait):
        codes = list(answer.find_codes())
        assert answer.look(codes) is None, "nothing is durable before the turn ends"
        producers.end_turn()
        answer = bench.read(answer.look(codes))
    return [
        each.error_code
        for marker in answer.markers
        for topic in marker.topics
        for each in topic.partitions
    ]


def last_stable(bench: ShardBench) -> tuple[int, int]:
    led = bench.shard.by_number(NUMBER)
    assert led is not None
    return led.offsets().last_stable, led.offsets().log_end


def test_a_hanging_transaction_is_aborted_and_the_answer_waits_for_the_durable_marker(
    bench: ShardBench, producers: Producers
) -> None:
    producers.write([b"a", b"b"], ME)
    assert last_stable(bench) == (0, 2)
    assert write(bench, producers, marking()) == [E.NONE]
    assert last_stable(bench) == (3, 3)
    [aborted] = bench.shard.logs[0].transactions.aborted_in(NUMBER, 0, 9, 9).rows
    assert aborted.first_offset == 0
    assert write(bench, producers, marking()) == [E.NONE], "again is harmless"
    assert last_stable(bench) == (3, 3)


def test_an_answer_that_waits_too_long_says_so(bench: ShardBench, producers: Producers) -> None:
    producers.write([b"a"], ME)
    asked = WriteTxnMarkersRequest(markers=[marking()])
    waiting = bench.ask("WriteTxnMarkers", 1, asked)
    assert isinstance(waiting, Wait)
    answer = bench.read(waiting.attempt(is_last=True))
    assert answer.markers[0].topics[0].partitions[0].error_code == E.REQUEST_TIMED_OUT


def test_epochs_that_are_past_are_refused(bench: ShardBench, producers: Producers) -> None:
    producers.write([b"a"], ME)
    assert write(bench, producers, marking((7, 2))) == [E.INVALID_PRODUCER_EPOCH]
    grows = marking(transaction_version=2)
    assert write(bench, producers, grows) == [E.INVALID_PRODUCER_EPOCH]
    assert write(bench, producers, marking((7, -1))) == [E.UNKNOWN_SERVER_ERROR]
    assert last_stable(bench) == (0, 1)


def test_a_coordinator_epoch_that_is_too_high_does_not_fence_our_coordinator(
    bench: ShardBench, producers: Producers
) -> None:
    producers.write([b"a"], ME)
    producers.end(NUMBER, Marker(*ME, True, 4))
    producers.write([b"b"], ME, sequence=1)
    assert write(bench, producers, marking(coordinator_epoch=3)) == [
        E.TRANSACTION_COORDINATOR_FENCED
    ]
    assert write(bench, producers, marking(coordinator_epoch=2**31 - 1)) == [E.NONE]
    producers.write([b"c"], ME, sequence=2)
    ending = producers.end(NUMBER, Marker(*ME, True, 4))
    assert ending.outcome(bench.shard) == E.NONE


def test_a_missing_partition_is_unknown(bench: ShardBench, producers: Producers) -> None:
    elsewhere = [
        WritableTxnMarkerTopic(name="none", partition_indexes=[0]),
        WritableTxnMarkerTopic(name="one", partition_indexes=[9]),
    ]
    assert write(bench, producers, marking(topics=elsewhere)) == [E.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert write(bench, producers, marking(topics=[])) == []


def test_an_end_is_written_to_the_audit_log_and_none_that_is_refused(
    bench: ShardBench, producers: Producers
) -> None:
    for rights, told in (("ALTER CLUSTER kafka-cluster", 1), ("DESCRIBE TOPIC one", 0)):
        limit_caller(bench, "alice", rights)
        producers.write([b"a"], ME)
        write(bench, producers, marking())
        acts = bench.caller.rights.audit.take_acts()
        assert len(acts) == told
        for act in map(json.loads, acts):
            assert act["principal"] == "User:alice"
            assert (act["operation"], act["resource"]) == ("END_TRANSACTION", "7")
            assert act["detail"] == "abort in one-0"


def test_an_end_is_written_for_the_partitions_that_have_its_marker(
    bench: ShardBench, producers: Producers
) -> None:
    limit_caller(bench, "alice", "ALTER CLUSTER kafka-cluster")
    producers.write([b"a"], ME)
    indexes = [9, 0, 0]
    topics = [WritableTxnMarkerTopic(name="one", partition_indexes=indexes)]
    write(bench, producers, marking(topics=topics))
    audit = bench.caller.rights.audit
    [act] = map(json.loads, audit.take_acts())
    told = map(json.loads, audit.take_accesses(Now(0, 0)))
    [failed] = [each for each in told if each["event"] == "failed act"]
    assert (act["detail"], act.get("error")) == ("abort in one-0", None)
    assert failed["detail"] == "abort in one-9"
    assert failed["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_an_end_is_written_though_a_later_marker_for_it_fails(
    bench: ShardBench, producers: Producers
) -> None:
    limit_caller(bench, "alice", "ALTER CLUSTER kafka-cluster")
    producers.write([b"a"], ME)
    markers = marking(), marking((ME[0], ME[1] - 1))
    assert write(bench, producers, *markers) == [E.INVALID_PRODUCER_EPOCH]
    [act] = map(json.loads, bench.caller.rights.audit.take_acts())
    assert act["detail"] == "abort in one-0"
