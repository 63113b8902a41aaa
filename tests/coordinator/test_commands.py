"""Commands of our own processes: the manifest, and topics that must be there."""

import json
from dataclasses import replace
from typing import Any, TypeVar, get_type_hints

import pytest

from smq.coordinator.commands import HANDLERS, LIST_SEGMENTS_MAX, execute
from smq.coordinator.topics import NewTopic
from smq.coordinator.transactions.decisions import End
from smq.coordinator.transactions.orders import MarkerOrder
from smq.model.errors import ErrorCode
from smq.model.segments import Segment
from smq.wire.internal.form import (
    Failed,
    Question,
    answer_type,
    decode_answer,
    encode_answer,
    encode_question,
)
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.groups import GroupHeld, HeldGroup, HeldRow, HoldGroups
from smq.wire.internal.manifest import (
    CommitSegments,
    DeleteSegments,
    ListSegments,
    ReplaceSegments,
    SegmentPage,
    SetLogStart,
)
from smq.wire.internal.messages import FOR_COORDINATOR, Audited, EnsureTopics
from smq.wire.internal.transactions import AddPartitions, FindTransactions, OpenProducer
from tests.coordinator.coordinator_driver import CoordinatorDriver
from tests.coordinator.test_groups import join

A = TypeVar("A")
SEGMENT = Segment(1, 0, 100, "parquet", "topics/a", 10, 99, 100, 5, 6, 0, 7)


def ask(driver: CoordinatorDriver, question: Question[A]) -> A:
    answer = answer_to(driver, question)
    assert not isinstance(answer, Failed), answer
    return answer


def answer_to(driver: CoordinatorDriver, question: Question[A]) -> A | Failed:
    """The answer to a question, both as bytes in between."""
    [asked] = InternalReader().receive(encode_question(1, question))
    answer = execute(asked.body, driver.coordinator, driver.now)
    [frame] = InternalReader().receive(encode_answer(1, answer))
    return decode_answer(type(question), frame.body)


def commit(driver: CoordinatorDriver, *segments: Segment) -> list[Segment]:
    return ask(driver, CommitSegments([*segments]))


@pytest.fixture(autouse=True)
def _topic(driver: CoordinatorDriver) -> None:
    driver.coordinator.topics.create(NewTopic(name="a", partition_count=2), driver.now)


def test_each_question_of_the_table_has_a_handler_of_its_types() -> None:
    assert set(HANDLERS) == set(FOR_COORDINATOR.values())
    for kind, handler in HANDLERS.items():
        hints = get_type_hints(handler)
        assert (hints["question"], hints["return"]) == (kind, answer_type(kind))


def test_segments_are_committed_listed_and_deleted(driver: CoordinatorDriver) -> None:
    assert commit(driver, SEGMENT) == [SEGMENT]
    assert ask(driver, ListSegments(1)) == SegmentPage(0, [SEGMENT])
    assert ask(driver, ListSegments(1, from_offset=100)).segments == []
    assert ask(driver, DeleteSegments([SEGMENT.path])) is True
    assert ask(driver, ListSegments(1)).segments == []


@pytest.mark.parametrize("way", ["deleted", "replaced"])
def test_files_are_replaced_when_the_manifest_says_so(driver: CoordinatorDriver, way: str) -> None:
    """Data fault 6: a coordinator that hung took the asker's time. A table that had followed in
    between still names the file, and the sweep deleted it as gone long before."""
    commit(driver, SEGMENT)
    asked_ms = driver.now.monotonic_ms
    driver.now = driver.now._replace(monotonic_ms=asked_ms + 600_000)
    if way == "deleted":
        assert ask(driver, DeleteSegments([SEGMENT.path], are_replaced=True))
    else:
        new = replace(SEGMENT, path="topics/b", attempt=1)
        assert ask(driver, ReplaceSegments([SEGMENT], new))
    manifest = driver.coordinator.store.manifest
    assert manifest.replaced_files([SEGMENT.path], asked_ms + 600_000) == {SEGMENT.path}


def test_very_many_segments_are_listed_by_pages(driver: CoordinatorDriver) -> None:
    count = LIST_SEGMENTS_MAX + 5
    all_of_them = [
        replace(SEGMENT, base_offset=i, end_offset=i + 1, path=f"topics/{i}") for i in range(count)
    ]
    commit(driver, *all_of_them)
    first = ask(driver, ListSegments(1)).segments
    assert len(first) == LIST_SEGMENTS_MAX
    rest = ask(driver, ListSegments(1, from_offset=first[-1].end_offset))
    assert first + rest.segments == all_of_them


def test_committing_again_names_the_file_that_counts(driver: CoordinatorDriver) -> None:
    commit(driver, SEGMENT)
    assert commit(driver, replace(SEGMENT, path="topics/b", attempt=1)) == [SEGMENT]


def test_an_overlap_is_an_error_with_a_sentence(driver: CoordinatorDriver) -> None:
    commit(driver, SEGMENT)
    answer = answer_to(driver, CommitSegments([replace(SEGMENT, end_offset=101)]))
    assert isinstance(answer, Failed)
    assert "overlaps topics/a" in answer.error


def test_the_log_start_rises(driver: CoordinatorDriver) -> None:
    assert ask(driver, SetLogStart(2, offset=30)) is True
    assert ask(driver, ListSegments(2)).log_start == 30


def test_topics_are_made_when_somebody_asks_for_them(driver: CoordinatorDriver) -> None:
    assert ask(driver, EnsureTopics(["a", "b"])) == {"a": None, "b": None}
    assert "b" in driver.coordinator.topics.catalog.by_name


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ({"do": "format_disk"}, "no command 'format_disk'"),
        ({}, "no command None"),
        ({"do": "list_segments"}, "malformed"),
        ({"do": "commit_segments", "segments": [{"path": "x"}]}, "malformed"),
        ({"do": "commit_segments", "segments": 5}, "malformed"),
    ],
)
def test_a_malformed_command_is_answered_with_an_error(
    driver: CoordinatorDriver, command: dict[str, Any], word: str
) -> None:
    answer = execute(json.dumps(command).encode(), driver.coordinator, driver.now)
    assert isinstance(answer, Failed)
    assert word in answer.error


def test_a_shard_adds_partitions_to_a_transaction_and_verifies_them(
    driver: CoordinatorDriver,
) -> None:
    there, also_there = driver.coordinator.topics.catalog.by_name["a"].partition_numbers
    producer = driver.coordinator.transactions.begin("t", 1000, None, driver.now)
    verify = AddPartitions("t", *producer, [there, 999], 7, verify_only=True)
    assert ask(driver, verify) == [
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert ask(driver, FindTransactions([OpenProducer(*producer)])) == [False]
    assert ask(driver, AddPartitions("t", *producer, [there, 999], 7)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    driver.store.commit()
    assert ask(driver, AddPartitions("t", *producer, [there, also_there], 7, verify_only=True)) == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
    ]
    asked = [OpenProducer(*producer), OpenProducer(producer.id + 1, 0)]
    assert ask(driver, FindTransactions(asked)) == [True, False]


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_is_known_by_its_epoch_however_busy_its_producer_is(
    driver: CoordinatorDriver, version: int
) -> None:
    """Data fault 20, its kind: a power loss took the marker of a transaction; the shard was told
    that its producer has one open, the next one, as often as it asked."""
    transactions = driver.coordinator.transactions
    [number, _] = driver.coordinator.topics.catalog.by_name["a"].partition_numbers
    producer = transactions.begin("t", 1000, None, driver.now)

    def known(*epochs: int) -> list[bool]:
        asked = [OpenProducer(producer.id, producer.epoch + each) for each in epochs]
        return ask(driver, FindTransactions(asked))

    def add() -> None:
        ask(driver, AddPartitions("t", *producer, [number], 7))

    add()
    assert known(-1, 0) == [False, True]
    end = End(producer, commits=True, bumps=version == 2)
    transactions.end("t", end, object(), driver.now)
    assert known(-1, 0) == [False, True], "it is being ended"
    for order in transactions.take_orders():
        assert isinstance(order, MarkerOrder)
        transactions.endings.marked(order, order.numbers, driver.now)
    assert known(-1, 0, 1) == [False] * 3
    if version == 1:
        return  # Its epoch stays: the next transaction is not distinguished.
    producer = producer._replace(epoch=producer.epoch + 1)
    add()
    assert known(-1, 0) == [False, True]


def test_a_producer_that_may_not_write_adds_nothing(driver: CoordinatorDriver) -> None:
    [number, _] = driver.coordinator.topics.catalog.by_name["a"].partition_numbers
    producer = driver.coordinator.transactions.begin("t", 1000, None, driver.now)
    for said, error in (
        (("t", producer.id, 1), ErrorCode.PRODUCER_FENCED),
        (("t", producer.id + 1, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (("other", *producer), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ):
        for verify_only in (False, True):
            assert (
                ask(driver, AddPartitions(*said, [number, number], 7, verify_only)) == [error] * 2
            )


def test_lines_of_a_shard_wait_for_the_end_of_the_turn(driver: CoordinatorDriver) -> None:
    assert ask(driver, Audited(["act"], ["denial"])) is True
    audit = driver.coordinator.access.audit
    assert audit.take_acts() == ["act"]
    assert audit.take_accesses(driver.now) == ["denial"]


# Groups that the agent holds


def test_members_are_taken_with_those_that_had_their_place_before(
    driver: CoordinatorDriver,
) -> None:
    def hold(*names: str, generation: int = -1) -> list[GroupHeld]:
        rows = [HeldRow(each, "client", "/host", f"I am {each}", "\x00\xff") for each in names]
        return ask(driver, HoldGroups(10_000, [HeldGroup("g", generation, rows, [])]))

    assert hold("a") == [GroupHeld(0, 1, [])]
    assert hold("b", generation=1) == [GroupHeld(0, 2, [])]
    assert hold("b", "c") == [GroupHeld(0, 3, [("I am a", "\x00\xff")])]
    group = driver.coordinator.groups.find("g")
    assert [(each.member_id, each.assignment) for each in group.roster] == [
        ("b", b"\x00\xff"),
        ("c", b"\x00\xff"),
    ]


def test_a_group_that_cannot_be_held_is_refused_alone(driver: CoordinatorDriver) -> None:
    join(driver, "k")
    row = HeldRow("a", "client", "/host", "", "")
    groups = [HeldGroup(each, -1, [row], []) for each in ("k", "g")]
    refused, held = ask(driver, HoldGroups(10_000, [*groups]))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert held == GroupHeld(0, 1, [])
    gone = HeldGroup("no group", 3, [], ["a"])
    assert [each.error_code != 0 for each in ask(driver, HoldGroups(10_000, [gone]))] == [True]
