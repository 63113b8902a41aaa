"""Committed offsets: each rule at the head of smq.coordinator.offsets; test_expiry has those of
expiry."""

import struct

import pytest

from smq.coordinator.group_events import Commit
from smq.coordinator.offsets import (
    DELETED_A_STEP,
    PAGE_OFFSETS,
    UNDECIDED,
    NamedPartition,
    Offered,
    Within,
)
from smq.coordinator.topics import NewTopic
from smq.coordinator.transactions.decisions import End, ProducerEpoch
from smq.model.catalog import Topic
from smq.model.errors import BrokerError, ErrorCode
from smq.store.config_changes import Changer
from smq.store.rows import CommittedOffset
from tests.coordinator.coordinator_driver import CoordinatorDriver
from tests.coordinator.test_groups import join, leave, stable

E = ErrorCode
OUTSIDE = Commit("", None, -1)
MEMBER = Commit("a", None, 1)
BY = Changer("c", "/10.0.0.1", 5)


def within(by: Commit) -> Commit:
    return Commit(by.member_id, by.instance_id, by.generation, is_transactional=True)


def make_topic(
    driver: CoordinatorDriver, name: str = "t", count: int = 3, durability: str = "os"
) -> Topic:
    configs = {"smq.durability": durability}
    new = NewTopic(name=name, partition_count=count, configs=configs)
    return driver.coordinator.topics.create(new, driver.now)


def offered(
    topic: Topic | None, partition: int = 0, offset: int = 42, metadata: str | None = "note"
) -> Offered:
    return Offered(topic, partition, offset, 3, metadata)


def commit(
    driver: CoordinatorDriver,
    *those: Offered,
    by: Commit = OUTSIDE,
    group_id: str = "g",
    retention_ms: int = -1,
) -> list[ErrorCode]:
    offsets = driver.coordinator.offsets
    return offsets.commit(group_id, by, those, driver.now, retention_ms=retention_ms)


def begin(driver: CoordinatorDriver) -> ProducerEpoch:
    return driver.coordinator.transactions.begin("mine", 60_000, None, driver.now)


def commit_within(
    driver: CoordinatorDriver,
    producer: ProducerEpoch,
    *those: Offered,
    by: Commit = OUTSIDE,
    group_id: str = "g",
    joins: bool = True,
) -> list[ErrorCode]:
    txn, offsets = Within("mine", producer, joins=joins), driver.coordinator.offsets
    return offsets.commit(group_id, within(by), those, driver.now, txn=txn)


def end(driver: CoordinatorDriver, producer: ProducerEpoch, *, commits: bool) -> None:
    end = End(producer, commits, bumps=True)
    driver.coordinator.transactions.end("mine", end, "ticket", driver.now)


def kept(driver: CoordinatorDriver, group_id: str = "g") -> dict[int, int]:
    return {
        number: each.offset for number, each in driver.store.committed_offsets(group_id).items()
    }


def subscription(*topics: str) -> bytes:
    """What a consumer says of itself (ConsumerProtocolSubscription 0)."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def join_but_wait(driver: CoordinatorDriver) -> None:
    """The group's member a has joined, and has no assignment yet."""
    join(driver)
    driver.wait(3000)


# Stored


def test_the_last_commit_counts_even_at_a_lower_offset(driver: CoordinatorDriver) -> None:
    topic = make_topic(driver)
    assert commit(driver, offered(topic, 0), offered(topic, 1)) == [E.NONE, E.NONE]
    assert commit(driver, offered(topic, 1, 7, metadata=None)) == [E.NONE]
    first, second, _ = topic.partition_numbers
    now_ms = driver.now.monotonic_ms
    assert driver.store.committed_offsets("g") == {
        first: CommittedOffset(42, 3, "note", now_ms),
        second: CommittedOffset(7, 3, "", now_ms),
    }


def test_a_topic_that_is_created_again_has_none_of_the_old_ones(driver: CoordinatorDriver) -> None:
    topic = make_topic(driver)
    commit(driver, offered(topic))
    driver.coordinator.topics.delete(topic)
    numbers = make_topic(driver).partition_numbers
    assert driver.coordinator.offsets.fetch("g", numbers, stable=False) == {}


def test_an_offset_of_an_internal_topic_is_accepted_and_not_kept(
    driver: CoordinatorDriver,
) -> None:
    internal = driver.coordinator.topics.catalog.find("__consumer_offsets")
    assert commit(driver, offered(internal)) == [E.NONE]
    assert commit_within(driver, begin(driver), offered(internal)) == [E.NONE]
    assert not driver.store.has_offsets("g")


@pytest.mark.parametrize(
    ("durabilities", "may_lose"), [(("os",), True), (("disk",), False), (("os", "disk"), False)]
)
def test_an_offset_survives_what_its_topic_survives(
    driver: CoordinatorDriver, durabilities: tuple[str, ...], may_lose: bool
) -> None:
    topics = [make_topic(driver, each, durability=each) for each in durabilities]
    driver.store.commit()
    assert not driver.store.may_lose
    commit(driver, *map(offered, topics))
    driver.store.commit()
    assert driver.store.may_lose is may_lose


def test_a_client_may_say_how_long_its_offset_is_kept(driver: CoordinatorDriver) -> None:
    topic = make_topic(driver)
    for retention_ms, expire_ms in ((5000, driver.now.monotonic_ms + 5000), (2**63 - 1,) * 2):
        commit(driver, offered(topic), retention_ms=retention_ms)
        [committed] = driver.store.committed_offsets("g").values()
        assert committed.expire_ms == expire_ms


# Who may commit


def test_an_offset_of_a_wrong_partition_fails_alone(driver: CoordinatorDriver) -> None:
    topic = make_topic(driver)
    those = (
        offered(None),
        offered(topic, -1),
        offered(topic, 3),
        offered(topic, 0, metadata="m" * 4097),
        offered(topic, 1, metadata="m" * 4096),
    )
    unknown = [E.UNKNOWN_TOPIC_OR_PARTITION] * 3
    assert commit(driver, *those) == [*unknown, E.OFFSET_METADATA_TOO_LARGE, E.NONE]
    within = commit_within(driver, begin(driver), *those)
    assert within == [*unknown, E.OFFSET_METADATA_TOO_LARGE, E.NONE]
    assert list(kept(driver)) == [topic.partition_numbers[1]]


def test_the_bound_of_metadata_is_the_setting_in_force(driver: CoordinatorDriver) -> None:
    topic = make_topic(driver)
    coordinator = driver.coordinator
    coordinator.settings.configure_broker("", {"offset.metadata.max.bytes": "3"}, BY)
    coordinator.take_settings()
    assert commit(driver, offered(topic)) == [E.OFFSET_METADATA_TOO_LARGE]


def test_a_client_from_outside_creates_the_group(driver: CoordinatorDriver) -> None:
    topic = make_topic(driver)
    for group_id in ("g", ""):
        assert commit(driver, offered(topic), group_id=group_id) == [E.NONE]
    assert {group.group_id for group in driver.coordinator.groups} == {"g", ""}


def test_a_group_is_not_asked_about_topics_that_do_not_exist(driver: CoordinatorDriver) -> None:
    assert commit(driver, offered(None), by=MEMBER) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert commit(driver, offered(None)) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert list(driver.coordinator.groups) == []


@pytest.mark.parametrize(
    ("by", "error", "error_within"),
    [
        (MEMBER, E.NONE, E.NONE),
        (OUTSIDE, E.UNKNOWN_MEMBER_ID, E.NONE),
        (Commit("a", None, 0), E.ILLEGAL_GENERATION, E.ILLEGAL_GENERATION),
        (Commit("stranger", None, 1), E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_to_a_group_with_members_are_accepted_from_members_only(
    driver: CoordinatorDriver, by: Commit, error: ErrorCode, error_within: ErrorCode
) -> None:
    topic = make_topic(driver)
    stable(driver)
    those = offered(topic, 0), offered(topic, 9), offered(topic, 1)
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(driver, *those, by=by) == [error, unknown, error]
    assert len(kept(driver)) == (2 if error is E.NONE else 0)
    within = commit_within(driver, begin(driver), *those, by=by)
    assert within == [error_within, unknown, error_within]


def test_between_joining_and_the_assignment_only_a_transaction_commits(
    driver: CoordinatorDriver,
) -> None:
    topic = make_topic(driver)
    join_but_wait(driver)
    assert commit(driver, offered(topic), by=MEMBER) == [E.REBALANCE_IN_PROGRESS]
    assert commit_within(driver, begin(driver), offered(topic), by=MEMBER) == [E.NONE]


# In a transaction


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_are_pending_until_their_transaction_ends(
    driver: CoordinatorDriver, commits: bool
) -> None:
    topic, offsets = make_topic(driver), driver.coordinator.offsets
    first, second, _ = topic.partition_numbers
    commit(driver, offered(topic, 0, 5), offered(topic, 1, 6))
    before = offsets.fetch("g", [first, second], stable=False)
    producer = begin(driver)
    commit_within(driver, producer, offered(topic, 0, 17))
    assert offsets.fetch("g", [first, second], stable=False) == before
    undecided = offsets.fetch("g", [first, second], stable=True)
    assert undecided[first] is UNDECIDED
    assert undecided[second] == before[second]
    assert list(offsets.pages("g", stable=True)) == [undecided]
    assert list(offsets.pages("g", stable=False)) == [before]
    end(driver, producer, commits=commits)
    assert kept(driver) == {first: 17 if commits else 5, second: 6}
    assert offsets.fetch("g", [first], stable=True)[first] is not UNDECIDED


def test_a_later_commit_stays_when_the_transaction_commits(driver: CoordinatorDriver) -> None:
    topic, producer = make_topic(driver), begin(driver)
    commit_within(driver, producer, offered(topic, 0, 17))
    commit(driver, offered(topic, 0, 5))
    end(driver, producer, commits=True)
    assert kept(driver) == {topic.partition_numbers[0]: 5}


def test_a_group_must_have_joined_the_transaction(driver: CoordinatorDriver) -> None:
    topic, producer = make_topic(driver), begin(driver)
    refused = commit_within(driver, producer, offered(topic), joins=False)
    assert refused == [E.TRANSACTION_ABORTABLE]
    assert commit_within(driver, producer, offered(topic)) == [E.NONE]
    assert commit_within(driver, producer, offered(topic), joins=False) == [E.NONE]
    assert commit_within(driver, producer, offered(topic), group_id="") == [E.INVALID_GROUP_ID]
    later = producer._replace(epoch=9)
    assert commit_within(driver, later, offered(topic)) == [E.PRODUCER_FENCED]


# Fetch


def test_all_offsets_are_read_page_by_page_without_those_of_deleted_topics(
    driver: CoordinatorDriver,
) -> None:
    deleted, topic = make_topic(driver, "deleted"), make_topic(driver, count=PAGE_OFFSETS)
    for each in (deleted, topic):
        commit(driver, *(offered(each, index) for index in range(each.partition_count)))
    driver.coordinator.topics.delete(deleted)
    pages = list(driver.coordinator.offsets.pages("g", stable=False))
    assert [len(page) for page in pages] == [PAGE_OFFSETS - 3, 3]
    assert [number for page in pages for number in page] == list(topic.partition_numbers)
    assert list(driver.coordinator.offsets.pages("none", stable=True)) == [{}]


# Deleted


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (subscription("t"), E.GROUP_SUBSCRIBED_TO_TOPIC),
        (b"what cannot be read", E.GROUP_SUBSCRIBED_TO_TOPIC),
        (subscription("other"), E.NONE),
    ],
)
def test_offsets_of_a_subscribed_topic_are_not_deleted(
    driver: CoordinatorDriver, said: bytes, error: ErrorCode
) -> None:
    topic = make_topic(driver)
    commit(driver, offered(topic, 0), offered(topic, 1))
    stable(driver, protocols=(("range", said),))
    places = [NamedPartition(topic, 0), NamedPartition(topic, 3), NamedPartition(None, 0)]
    [errors] = driver.coordinator.offsets.delete("g", places)
    assert errors == [error, *[E.UNKNOWN_TOPIC_OR_PARTITION] * 2]
    assert len(kept(driver)) == (1 if error is E.NONE else 2)


def test_only_consumers_may_have_members_when_an_offset_is_deleted(
    driver: CoordinatorDriver,
) -> None:
    topic, delete = make_topic(driver), driver.coordinator.offsets.delete
    stable(driver, protocol_type="connect")
    for group_id, refusal in (("g", "NON_EMPTY"), ("x", "GROUP_ID_NOT_FOUND"), ("", "INVALID")):
        with pytest.raises(BrokerError, match=refusal):
            next(delete(group_id, [NamedPartition(topic, 0)]))
    leave(driver)
    assert list(delete("g", [NamedPartition(topic, 0)])) == [[E.NONE]]


def test_pending_offsets_are_deleted_too_so_many_at_a_step(driver: CoordinatorDriver) -> None:
    """A deleted offset came back when the transaction committed. Apache Kafka forgets it."""
    topic, transactions = make_topic(driver), driver.coordinator.transactions
    number, other, _ = topic.partition_numbers
    commit(driver, offered(topic))
    for each in range(DELETED_A_STEP + 1):
        transactions.begin(f"t{each}", 60_000, None, driver.now)
        pending = dict.fromkeys((number, other), CommittedOffset(5, -1, "", 0))
        driver.store.transactions.put_offsets(f"t{each}", "g", pending)
    assert list(driver.coordinator.offsets.delete("g", [NamedPartition(topic, 0)])) == [
        [],
        [E.NONE],
    ]
    assert kept(driver) == {}
    assert driver.store.transactions.undecided("g", [number, other]) == {other}


# With their group


def test_only_an_empty_group_is_deleted_and_takes_its_offsets_along(
    driver: CoordinatorDriver,
) -> None:
    groups, offsets = driver.coordinator.groups, driver.coordinator.offsets
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        offsets.delete_group("g")
    topic = make_topic(driver)
    commit(driver, offered(topic))
    stable(driver)
    with pytest.raises(BrokerError, match="NON_EMPTY_GROUP"):
        offsets.delete_group("g")
    leave(driver)
    commit_within(driver, begin(driver), offered(topic))
    offsets.delete_group("g")
    assert not driver.store.has_offsets("g")
    assert driver.store.groups() == []
    with pytest.raises(BrokerError) as refusal:
        groups.find("g")
    assert refusal.value.code is E.GROUP_ID_NOT_FOUND


def wide_group(driver: CoordinatorDriver) -> Topic:
    """A group whose offsets are deleted in four steps."""
    topic = make_topic(driver, count=3 * DELETED_A_STEP)
    commit(driver, *(offered(topic, index) for index in range(topic.partition_count)))
    return topic


def test_a_group_being_deleted_refuses_all_other_requests(driver: CoordinatorDriver) -> None:
    topic, offsets = wide_group(driver), driver.coordinator.offsets
    offsets.delete_group("g")
    assert len(kept(driver)) == 2 * DELETED_A_STEP
    loading = E.COORDINATOR_LOAD_IN_PROGRESS
    assert commit(driver, offered(topic)) == [loading]
    assert commit_within(driver, begin(driver), offered(topic)) == [loading]
    for refused in (
        lambda: offsets.fetch("g", topic.partition_numbers, stable=False),
        lambda: next(offsets.pages("g", stable=False)),
        lambda: next(offsets.delete("g", [])),
    ):
        with pytest.raises(BrokerError, match=loading.name):
            refused()
    offsets.delete_group("g")  # It is asked for again.
    for left in (DELETED_A_STEP, 0, 0):
        assert offsets.next_wake_ms() <= driver.now.monotonic_ms
        offsets.tick(driver.now)
        driver.coordinator.groups.invariants()
        assert len(kept(driver)) == left
    assert list(driver.coordinator.groups) == []
    assert commit(driver, offered(topic)) == [E.NONE]


def test_a_group_that_was_being_deleted_is_deleted_after_a_restart(
    driver: CoordinatorDriver,
) -> None:
    """Data fault 13: a coordinator that was killed amid DeleteGroups left some of the offsets, and
    a consumer that came back began there."""
    wide_group(driver)
    driver.store.commit()
    driver.restart()
    driver.coordinator.offsets.delete_group("g")
    driver.store.commit()
    assert 0 < len(kept(driver)) < 3 * DELETED_A_STEP
    driver.restart()
    assert "g" in driver.coordinator.groups.deleting
    driver.wait(0)
    assert not driver.coordinator.groups.deleting
    assert kept(driver) == {}
    driver.store.commit()
    driver.restart()
    assert not driver.coordinator.groups.deleting
