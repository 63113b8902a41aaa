"""Expiry walks over all groups, so many rows at a step, and forgets no group that is in use. Which
offsets expire, and when."""

from itertools import pairwise

import pytest

from smq.coordinator.expiry import (
    BYTES_A_ROW,
    CHECK_INTERVAL_MS,
    GROUP_ROWS,
    ROWS_A_STEP,
    ROWS_MIN,
)
from smq.coordinator.group_states import GroupState
from smq.model.catalog import Topic
from smq.model.now import Now
from smq.store.rows import CommittedOffset
from tests.coordinator.coordinator_driver import CoordinatorDriver
from tests.coordinator.test_groups import SESSION_MS, heartbeat, join, leave, stable, sync
from tests.coordinator.test_offsets import (
    BY,
    OUTSIDE,
    begin,
    commit,
    commit_within,
    end,
    kept,
    make_topic,
    offered,
    subscription,
)

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS


def keep_old(
    driver: CoordinatorDriver, topic: Topic, ago_ms: int = 0, group_id: str = "g", count: int = 1
) -> None:
    """A group has committed some time ago."""
    committed = CommittedOffset(42, -1, "", driver.now.monotonic_ms - ago_ms)
    offsets = dict.fromkeys(topic.partition_numbers[:count], committed)
    driver.store.commit_offsets(group_id, offsets)


def make_empty(driver: CoordinatorDriver, group_id: str) -> None:
    driver.coordinator.groups.handle(group_id, OUTSIDE, driver.now)


def walk(driver: CoordinatorDriver) -> list[int]:
    """How many offsets each step of a walk has left, while no member's time passes."""
    offsets, found = driver.coordinator.offsets, list[int]()
    now_ms = driver.now.monotonic_ms + CHECK_INTERVAL_MS
    driver.now = driver.now._replace(monotonic_ms=now_ms)
    offsets.tick(driver.now)
    while offsets.next_wake_ms() <= now_ms:
        offsets.tick(driver.now)
        found.append(sum(len(kept(driver, each)) for each in driver.store.groups_with_offsets()))
    return found


# So many rows at a step


def test_only_idle_groups_whose_last_offset_has_gone_are_forgotten(
    driver: CoordinatorDriver,
) -> None:
    topic = make_topic(driver)
    stable(driver, "busy", protocol_type="connect")
    for group_id in ("old", "kept", "none"):
        make_empty(driver, group_id)
    commit(driver, offered(topic, 1), group_id="kept")
    for group_id in ("old", "kept", "busy"):
        keep_old(driver, topic, YEAR_MS, group_id)
    [_] = walk(driver)
    assert {group.group_id for group in driver.coordinator.groups} == {"kept", "busy"}
    first, second, _ = topic.partition_numbers
    assert (list(kept(driver, "kept")), list(kept(driver, "busy"))) == ([second], [first])


def test_a_step_looks_at_so_many_rows_and_the_next_goes_on_behind_them(
    driver: CoordinatorDriver,
) -> None:
    count = 5 * ROWS_A_STEP
    topic = make_topic(driver, count=count)
    make_empty(driver, "g")
    keep_old(driver, topic, YEAR_MS, count=count)
    left = walk(driver)
    assert len(left) == 6
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise([count, *left])) < ROWS_A_STEP
    assert list(driver.coordinator.groups) == []


@pytest.mark.parametrize("are_busy", [False, True])
def test_very_many_groups_take_steps_by_their_number_busy_or_not(
    driver: CoordinatorDriver, are_busy: bool
) -> None:
    topic = make_topic(driver)
    for i in range(1000):
        if are_busy:
            join(driver, f"g{i}")
        else:
            make_empty(driver, f"g{i}")
        keep_old(driver, topic, group_id=f"g{i}")
    steps = len(walk(driver))
    assert 1000 * GROUP_ROWS // ROWS_A_STEP <= steps <= 1000 * (GROUP_ROWS + 1) // ROWS_A_STEP + 1


def test_a_step_ends_after_a_group_that_took_long_to_read(driver: CoordinatorDriver) -> None:
    """Data fault 13, its kind: a step counted groups and rows, not the topics that members
    subscribe to. 50 groups of 9,000 topics each held the coordinator for 0.4 s."""
    said = subscription("t") + bytes(ROWS_A_STEP * BYTES_A_ROW)
    for i in range(10):
        join(driver, f"g{i}", protocols=(("range", said),))
    driver.wait(3000)
    for i in range(10):
        sync(driver, f"g{i}")
    assert len(walk(driver)) == 10


def test_a_group_that_took_long_to_read_still_gets_on(driver: CoordinatorDriver) -> None:
    topic = make_topic(driver, count=5 * ROWS_MIN)
    said = subscription("t") + bytes(10 * ROWS_A_STEP * BYTES_A_ROW)
    stable(driver, protocols=(("range", said),))
    keep_old(driver, topic, count=5 * ROWS_MIN)
    assert len(walk(driver)) == 6


# Which, and when


def test_a_consumer_that_comes_back_after_6_days_finds_its_offset(
    driver: CoordinatorDriver,
) -> None:
    topic = make_topic(driver)
    commit(driver, offered(topic))
    stable(driver)
    keep_old(driver, topic)
    leave(driver)
    driver.store.commit()
    driver.restart()
    driver.wait(6 * DAY_MS)
    driver.set_clock(8 * DAY_MS)
    driver.wait(CHECK_INTERVAL_MS)
    assert kept(driver) == {topic.partition_numbers[0]: 42}
    join(driver)
    driver.wait(3000)
    assert driver.coordinator.groups.find("g").generation == 3


def test_after_seven_days_without_members_offsets_and_group_are_forgotten(
    driver: CoordinatorDriver,
) -> None:
    commit(driver, offered(make_topic(driver)))
    driver.set_clock(-8 * DAY_MS)
    driver.wait(7 * DAY_MS + CHECK_INTERVAL_MS)
    assert kept(driver) == {}
    assert list(driver.coordinator.groups) == []
    driver.store.commit()
    driver.restart()
    assert list(driver.coordinator.groups) == []


@pytest.mark.parametrize(
    ("restart_minutes", "new_minutes"), [(1, None), (None, 1)], ids=["at the start", "later"]
)
def test_the_retention_is_the_setting_in_force(
    driver: CoordinatorDriver, restart_minutes: int | None, new_minutes: int | None
) -> None:
    if restart_minutes is not None:
        driver.restart(config={"offsets_retention_minutes": restart_minutes})
    commit(driver, offered(make_topic(driver)))
    if new_minutes is not None:
        coordinator = driver.coordinator
        new = {"offsets.retention.minutes": str(new_minutes)}
        coordinator.settings.configure_broker("", new, BY)
        coordinator.take_settings()
    driver.wait(CHECK_INTERVAL_MS)
    assert kept(driver) == {}


def test_a_retention_that_the_client_named_wins(driver: CoordinatorDriver) -> None:
    topic = make_topic(driver)
    commit(driver, offered(topic, 0), retention_ms=1000)
    commit(driver, offered(topic, 1))
    driver.wait(CHECK_INTERVAL_MS)
    assert list(kept(driver)) == [topic.partition_numbers[1]]


@pytest.mark.parametrize(
    ("kind", "away_days", "is_kept"),
    [("seaweedmq", 30, True), ("seaweedmq", 32, False), ("consumer", 30, False)],
)
def test_a_subscriber_of_seaweedmqs_services_may_stay_away_for_30_days(
    driver: CoordinatorDriver, kind: str, away_days: int, is_kept: bool
) -> None:
    topic = make_topic(driver)
    stable(driver, protocol_type=kind)
    keep_old(driver, topic)
    leave(driver)
    for step_ms in (-40 * DAY_MS, 90 * DAY_MS):
        driver.store.commit()
        driver.restart()
        driver.set_clock(step_ms)
        driver.wait(away_days * DAY_MS // 2)
    assert bool(kept(driver)) == is_kept


def test_the_longer_retention_holds_for_seaweedmqs_subscribers(driver: CoordinatorDriver) -> None:
    driver.restart(
        config={"offsets_retention_minutes": 60 * 24 * 60, "grpc_offsets_retention_minutes": 1}
    )
    topic = make_topic(driver)
    stable(driver, protocol_type="seaweedmq")
    keep_old(driver, topic)
    leave(driver)
    driver.wait(59 * DAY_MS)
    assert len(kept(driver)) == 1


def test_pending_offsets_do_not_expire(driver: CoordinatorDriver) -> None:
    topic = make_topic(driver)
    producer = begin(driver)
    commit_within(driver, producer, offered(topic))
    driver.wait(8 * DAY_MS)
    end(driver, producer, commits=True)
    assert len(kept(driver)) == 1


@pytest.mark.parametrize(
    ("kind", "said", "is_kept"),
    [
        ("consumer", subscription("t"), True),
        ("consumer", subscription("other"), False),
        ("consumer", b"what cannot be read", True),
        ("connect", subscription("other"), True),
    ],
)
def test_a_group_with_members_keeps_old_offsets_of_what_it_reads(
    driver: CoordinatorDriver, kind: str, said: bytes, is_kept: bool
) -> None:
    topic = make_topic(driver)
    stable(driver, protocol_type=kind, protocols=(("range", said),))
    keep_old(driver, topic, ago_ms=400 * DAY_MS)
    for _ in range(CHECK_INTERVAL_MS // SESSION_MS * 2):
        driver.wait(SESSION_MS - 1)
        heartbeat(driver)
    assert bool(kept(driver)) == is_kept
    assert driver.coordinator.groups.find("g").state is GroupState.STABLE


def test_an_empty_group_without_offsets_is_forgotten_at_the_next_check(
    driver: CoordinatorDriver,
) -> None:
    stable(driver)
    leave(driver)
    driver.wait(CHECK_INTERVAL_MS)
    assert list(driver.coordinator.groups) == []
    assert driver.store.groups() == []


def test_a_group_whose_member_was_given_an_id_is_not_forgotten(driver: CoordinatorDriver) -> None:
    driver.wait(CHECK_INTERVAL_MS - 1000)
    join(driver, must_know_member_id=True)
    driver.wait(1000)
    join(driver, member_id="a")


@pytest.mark.parametrize("step_ms", [-YEAR_MS, YEAR_MS])
def test_no_age_is_negative_after_a_restart(driver: CoordinatorDriver, step_ms: int) -> None:
    """Data fault 2: a time line that went back by a year kept offsets for a year and a week."""
    topic = make_topic(driver)
    commit(driver, offered(topic), group_id="h")
    stable(driver)
    leave(driver)
    keep_old(driver, topic)
    driver.store.commit()
    driver.now = Now(driver.now.monotonic_ms + step_ms, driver.now.wall_ms + step_ms)
    driver.restart()
    driver.wait(8 * DAY_MS)
    assert kept(driver) == kept(driver, "h") == {}
    assert list(driver.coordinator.groups) == []


def test_expiry_of_many_groups_lets_requests_in_between(driver: CoordinatorDriver) -> None:
    topic, groups, offsets = (
        make_topic(driver),
        driver.coordinator.groups,
        driver.coordinator.offsets,
    )
    for i in range(300):
        commit(driver, offered(topic), group_id=f"g{i}")
    driver.now = Now(driver.now.monotonic_ms + 61 * DAY_MS, driver.now.wall_ms)
    offsets.tick(driver.now)
    left = []
    while offsets.next_wake_ms() <= driver.now.monotonic_ms:
        offsets.tick(driver.now)
        left.append(len(list(groups)))
        if len(left) == 1:  # It is looked at last: the walk begins at the other end.
            commit(driver, offered(topic), group_id="g0")
    assert len(left) > 3
    assert [group.group_id for group in groups] == ["g0"]
    groups.invariants()
