"""A shard leads what the catalog says, and publishes what has reached its level."""

from collections.abc import Collection
from pathlib import Path

import pytest

from shm.kernels.base.words import (
    DURABILITY_DISK,
    DURABILITY_MEMORY,
    DURABILITY_OS,
    WORD_INDEX_TAIL,
    WORD_SYNCED,
)
from smq.log.partitions import PartitionSettings
from smq.model.catalog import Catalog, Node
from smq.model.config import Config
from smq.model.errors import ErrorCode
from smq.model.segments import KnownEnds
from smq.shard.led import Led
from smq.shard.shard import Shard
from tests.shard.shard_bench import (
    NODES,
    SECRET,
    Appender,
    HeldSyncer,
    batch,
    catalog,
    new_log,
    new_shard,
    produce_request,
    responses,
    topic,
)


def led(shard: Shard, name: str, index: int = 0) -> Led:
    found = shard.find(shard.catalog.by_name[name], index)
    assert isinstance(found, Led)
    return found


def test_a_shard_leads_the_partitions_of_its_logs_only(tmp_path: Path) -> None:
    spread = topic("spread", range(1, 4), logs=(0, 5, 0))
    shard = new_shard(tmp_path, spread)
    assert isinstance(shard.find(spread, 0), Led)
    assert shard.find(spread, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert shard.find(spread, 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert shard.find(spread, -1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {each.number for each in shard.led()} == {1, 3}


def test_a_topic_that_is_gone_is_dropped_and_its_number_is_not_found(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, topic("gone"), topic("stays", range(2, 3)))
    Appender(shard).append("gone", 0, batch(b"x"))
    shard.take_catalog(catalog(topic("stays", range(2, 3))), 2)
    shard.invariants()
    assert shard.by_number(1) is None
    assert shard.by_number(2) is not None


def test_a_topic_made_again_under_its_name_has_none_of_the_old_records(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, topic("again"))
    appender = Appender(shard)
    appender.append("again", 0, batch(b"old"))
    shard.take_catalog(catalog(topic("again", range(2, 3))), 2)
    assert led(shard, "again").offsets().log_end == 0
    assert appender.append("again", 0, batch(b"new")) == 0


def test_topics_get_the_rows_of_those_that_are_deleted_in_the_same_catalog(tmp_path: Path) -> None:
    """In a log with as many partitions as it may have: the shard ended."""
    shard = new_shard(tmp_path, topic("old", range(1, 1025)))
    assert shard.logs[0].partitions.is_full
    shard.take_catalog(catalog(topic("new", range(2000, 3024))), 2)
    assert shard.logs[0].partitions.slots.keys() == set(range(2000, 3024))
    shard.invariants()


def test_a_partition_keeps_its_offsets_when_the_catalog_changes(tmp_path: Path) -> None:
    kept = topic("kept")
    shard = new_shard(tmp_path, kept)
    Appender(shard).append("kept", 0, batch(b"a", b"b"))
    shard.take_catalog(catalog(kept, topic("new", range(2, 3))), 2)
    assert led(shard, "kept").offsets().high_watermark == 2


def test_a_change_of_the_catalog_touches_the_topics_that_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [topic(f"t{i}", range(i, i + 1)) for i in range(1, 5)]
    shard = new_shard(tmp_path, *kept)
    log, adopted, dropped = shard.logs[0], [], []
    adopt, drop = log.adopt, log.drop_partitions

    def adopting(number: int, settings: PartitionSettings) -> int:
        adopted.append(number)
        return adopt(number, settings)

    def dropping(numbers: Collection[int]) -> None:
        dropped.append(list(numbers))
        drop(numbers)

    monkeypatch.setattr(log, "adopt", adopting)
    monkeypatch.setattr(log, "drop_partitions", dropping)
    shard.take_catalog(catalog(*kept, topic("new", range(5, 8))), 2)
    shard.invariants()
    assert (adopted, dropped) == ([5, 6, 7], [])
    shard.take_catalog(catalog(*kept[:3]), 3)
    shard.invariants()
    assert (adopted, dropped) == ([5, 6, 7], [[4, 5, 6, 7]])  # At once.


def test_the_first_catalog_drops_a_logs_rows_of_deleted_topics(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    log.adopt(9, PartitionSettings(DURABILITY_OS, 1 << 20))
    shard = Shard(1, Config(), {0: log}, lambda _: [], SECRET)
    shard.take_catalog(catalog(topic("a")), 1)
    shard.invariants()
    assert set(log.partitions.slots) == {1}


def test_partitions_end_where_the_manifest_says_at_least(tmp_path: Path) -> None:
    shard = Shard(1, Config(), {0: new_log(tmp_path, generation=3)}, lambda _: [], SECRET)
    disk = {"smq.durability": "disk"}
    shard.take_catalog(catalog(topic("kept"), topic("lost", range(2, 3), disk)), 1)
    appender = Appender(shard)
    appender.append("kept", 0, batch(b"a", b"b"))
    known = [KnownEnds(1, 0, 2, 0), KnownEnds(2, 0, 500, 0), KnownEnds(99, 0, 500, 0)]
    assert not led(shard, "lost").may_have_lost(7, 2)
    assert shard.raise_ends(known, 0) == [shard.logs[0]]
    assert led(shard, "lost").may_have_lost(7, 2), "a transaction that began before is not whole"
    shard.invariants()
    assert (led(shard, "kept").offsets().log_end, led(shard, "kept").offsets().sealed_end) == (2, 0)
    assert appender.append("lost", 0, batch(b"new")) == 500
    assert shard.raise_ends(known, 0) == []


def test_epochs_are_compared_with_the_one_the_partition_is_led_in(tmp_path: Path) -> None:
    one = topic("one")
    logs = {0: new_log(tmp_path / "b", generation=5)}
    shard = Shard(1, new_shard(tmp_path).config, logs, lambda _: [], SECRET)
    shard.take_catalog(catalog(one), 1)
    here = led(shard, "one")
    expected = {
        -1: ErrorCode.NONE,
        5: ErrorCode.NONE,
        4: ErrorCode.FENCED_LEADER_EPOCH,
        -2: ErrorCode.FENCED_LEADER_EPOCH,
        6: ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
    assert {epoch: shard.check_epoch(epoch, here) for epoch in expected} == expected


def test_nothing_is_visible_before_its_level_on_one_log(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    syncer = log.syncs.syncer = HeldSyncer(log.memory)
    shard = Shard(1, new_shard(tmp_path / "unused").config, {0: log}, lambda _: [], SECRET)
    levels = ("memory", "os", "disk")
    topics = [
        topic(level, range(i, i + 1), {"smq.durability": level})
        for i, level in enumerate(levels, 1)
    ]
    shard.take_catalog(catalog(*topics), 1)
    assert shard.levels == {DURABILITY_MEMORY, DURABILITY_OS, DURABILITY_DISK}
    Appender(shard).run(produce_request({level: {0: batch(b"x")} for level in levels}))

    def visible() -> list[str]:
        for level in sorted(shard.levels):
            shard.publish(log, level)
        return [level for level in levels if led(shard, level).offsets().high_watermark]

    assert visible() == ["memory"]
    log.write()
    assert visible() == ["memory", "os"]
    log.want_sync()
    assert visible() == ["memory", "os"]
    syncer.release()
    assert visible() == ["memory", "os", "disk"]
    slots = {(0, led(shard, level).slot) for level in levels}
    assert shard.take_moved() == slots
    assert not shard.take_moved()


def with_level(level: str) -> Catalog:
    return catalog(topic("one", range(1, 2), {"smq.durability": level}), topic("two", range(2, 3)))


def test_records_become_visible_when_their_topic_gets_a_lower_level(tmp_path: Path) -> None:
    shard = new_shard(tmp_path)
    shard.take_catalog(with_level("disk"), 2)
    log, appender = shard.logs[0], Appender(shard)
    log.syncs.syncer = HeldSyncer(log.memory)
    appender.run(produce_request({"one": {0: batch(b"x")}, "two": {0: batch(b"x")}}))
    appender.end_turn()
    assert led(shard, "one").offsets().high_watermark == 0
    shard.take_moved()
    shard.take_catalog(with_level("os"), 3)
    assert led(shard, "one").offsets().high_watermark == 1
    assert shard.take_moved() == {(0, led(shard, "one").slot)}


def test_visible_records_stay_visible_when_their_topic_gets_a_higher_level(tmp_path: Path) -> None:
    shard = new_shard(tmp_path)
    shard.take_catalog(with_level("os"), 2)
    log, appender = shard.logs[0], Appender(shard)
    appender.append("one", 0, batch(b"synced"))
    syncer = log.syncs.syncer = HeldSyncer(log.memory)
    appender.append("one", 0, batch(b"not synced"))
    shard.take_catalog(with_level("disk"), 3)
    appender.run(produce_request({"one": {0: batch(b"later")}}))
    appender.end_turn()
    assert led(shard, "one").offsets().high_watermark == 2
    syncer.release()
    appender.end_turn()
    assert led(shard, "one").offsets().high_watermark == 3


@pytest.mark.parametrize("logs", [1, 2])
def test_a_full_ring_is_drained_while_a_request_is_appended(tmp_path: Path, logs: int) -> None:
    places = (0,) if logs == 1 else (0, 1)
    many = topic("many", range(1, 1 + len(places)), logs=places)
    shard = new_shard(tmp_path, many, logs=logs)
    appender = Appender(shard)
    value = b"v" * 10_000
    for i in range(60):
        assert appender.append("many", i % logs, batch(value)) == i // logs
    assert led(shard, "many").offsets().log_end == 60 // logs


@pytest.mark.timeout(30)
def test_a_full_index_is_synced_for_the_first_disk_topic(tmp_path: Path) -> None:
    """Nothing was wanted synced before: its entries would stay for ever, and the loop with them."""
    shard = new_shard(tmp_path, topic("os"))
    log = shard.logs[0]
    appender = Appender(shard)

    def append(name: str) -> None:
        produced = appender.run(produce_request({name: {0: batch(b"x")}}))
        [(_, response)] = responses(bytes(produced.answers))
        assert response.responses[0].partition_responses[0].error_code == 0

    while log.words[WORD_INDEX_TAIL] < log.memory.layout.index_capacity:
        append("os")
    assert log.write()
    shard.publish(log, DURABILITY_OS)
    disk = topic("disk", range(2, 3), {"smq.durability": "disk"})
    shard.take_catalog(catalog(topic("os"), disk), 2)
    assert log.words[WORD_SYNCED] == 0
    for _ in range(2):
        append("disk")
    assert log.words[WORD_SYNCED] > 0


def test_a_leader_has_the_address_of_the_listener_that_is_asked_through(tmp_path: Path) -> None:
    asked: list[str] = []

    def nodes(listener: str) -> list[Node]:
        asked.append(listener)
        return [Node(1, f"{listener or 'first'}.example", 9092, 0)]

    several = "PLAINTEXT://127.0.0.1:1,SASL_PLAINTEXT://127.0.0.1:9"
    for listeners, expected in (("", "first.example"), (several, None)):
        config = Config(listeners=listeners)
        shard = Shard(1, config, {0: new_log(tmp_path / (listeners[:9] or "a"))}, nodes, SECRET)
        shard.take_catalog(catalog(topic("one")), 1)
        unnamed = shard.leader_of("one", 0)
        assert (None if unnamed is None else unnamed.node.host) == expected
        leader = shard.leader_of("one", 0, "SASL_PLAINTEXT")
        assert leader is not None
        assert leader.node.host == "SASL_PLAINTEXT.example"


def test_a_client_is_not_sent_back_to_the_shard_that_refuses_it(tmp_path: Path) -> None:
    """A closed partition is refused by its own leader: whose name would have the client spin."""
    shard = new_shard(tmp_path, topic("one", range(1, 3), logs=(0, 1)))
    assert shard.leader_of("one", 0) == (NODES[0], NODES[0].generation)
    assert shard.leader_elsewhere("one", 0) is None
    assert shard.leader_elsewhere("one", 1) == (NODES[1], NODES[1].generation)
    assert shard.leader_elsewhere("two", 0) is None
