"""Bitmaps have a right from when Python has found it until a rule or a topic changes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.log.bitmaps import NOBODYS
from smq.security.acls import AclBinding, Operation, PatternType, Permission
from smq.shard import bitmaps as module
from smq.shard.bitmaps import BITMAPS_MAX
from tests.security.test_authorizer import rule
from tests.shard.limited import AWAY, HOME, Limited, peer
from tests.shard.shard_bench import new_shard, topic

READ, WRITE = Operation.READ, Operation.WRITE
ORDERS, OTHERS = topic("orders", range(1, 4)), topic("others", range(4, 5))
ALICE, BOB = peer("alice"), peer("bob")
MAY_WRITE, BOB_MAY = rule("orders", WRITE), rule("orders", WRITE, principal="User:bob")


def at(host: str, found: AclBinding) -> AclBinding:
    """A rule about an address."""
    return found._replace(entry=found.entry._replace(host=host))


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Limited]:
    limited = Limited(tmp_path, ORDERS, OTHERS)
    yield limited
    limited.shard.invariants()


def test_a_right_is_known_once_python_has_found_it(limited: Limited) -> None:
    limited.rule(MAY_WRITE)
    assert not limited.has(ALICE, "orders")
    assert limited.ask(ALICE, "orders")
    assert limited.has(ALICE, "orders")
    for who, name, operation in ((BOB, "orders", WRITE), (ALICE, "others", WRITE)):
        assert not limited.has(who, name, operation)
    assert not limited.has(ALICE, "orders", READ)
    assert not limited.ask(BOB, "orders")
    assert not limited.has(BOB, "orders")


def test_all_partitions_of_a_request_must_be_known(limited: Limited) -> None:
    limited.rule(MAY_WRITE)
    codes = [limited.code("orders", index) for index in range(3)]
    limited.bitmaps.learn(ALICE, WRITE, [*codes[:2], -1])
    assert limited.bitmaps.has(ALICE, WRITE, codes[:2])
    assert limited.bitmaps.has(ALICE, WRITE, [])
    assert not limited.bitmaps.has(ALICE, WRITE, codes)


@pytest.mark.parametrize(
    "after",
    [
        [],
        [MAY_WRITE, rule("orders", WRITE, Permission.DENY)],
        [MAY_WRITE, rule("or", WRITE, Permission.DENY, how=PatternType.PREFIXED)],
        [MAY_WRITE, rule("*", WRITE, Permission.DENY, principal="User:*")],
    ],
)
def test_a_rule_takes_the_bits_that_it_concerns(limited: Limited, after: list[AclBinding]) -> None:
    other = rule("others", WRITE)
    limited.rule(MAY_WRITE, other)
    assert limited.ask(ALICE, "orders")
    limited.rule(*after, other)
    assert not limited.has(ALICE, "orders")
    assert not limited.ask(ALICE, "orders")
    limited.rule(MAY_WRITE, other)
    assert not limited.has(ALICE, "orders"), "nobody has asked since"
    assert limited.ask(ALICE, "orders")


def test_a_rule_takes_no_other_bits(limited: Limited) -> None:
    limited.rule(MAY_WRITE, BOB_MAY, rule("others", WRITE))
    assert limited.ask(ALICE, "others")
    assert limited.ask(BOB, "orders")
    limited.rule(BOB_MAY, rule("others", WRITE))
    assert limited.has(ALICE, "others")
    assert limited.has(BOB, "orders")


def test_where_a_topic_without_rules_is_open_another_principals_rule_closes_it(
    tmp_path: Path,
) -> None:
    limited = Limited(tmp_path, ORDERS, allow_if_no_rule=True)
    assert limited.ask(ALICE, "orders")
    limited.rule(BOB_MAY)
    assert not limited.has(ALICE, "orders")


def test_clients_share_their_bits_until_a_rule_names_an_address(limited: Limited) -> None:
    limited.rule(MAY_WRITE)
    home, away = peer(host=HOME), peer(host=AWAY)
    assert limited.ask(home, "orders")
    assert limited.has(away, "orders")
    assert limited.bitmaps.row_of(home) == limited.bitmaps.row_of(away)
    limited.rule(MAY_WRITE, at(AWAY, rule("orders", WRITE, Permission.DENY)))
    assert limited.ask(home, "orders")
    assert not limited.has(away, "orders")
    assert not limited.ask(away, "orders")
    assert limited.has(home, "orders")
    assert limited.bitmaps.row_of(home) != limited.bitmaps.row_of(away)


def test_shared_bits_are_given_up_when_a_rule_names_an_address(limited: Limited) -> None:
    released: list[int] = []
    limited.bitmaps.released = released.append
    limited.rule(MAY_WRITE)
    limited.ask(ALICE, "orders")
    row = limited.bitmaps.row_of(ALICE)
    limited.rule(MAY_WRITE, at(AWAY, rule("others", READ)))
    assert released == [row]


def test_a_topic_made_again_under_its_name_or_in_its_place_has_no_bits(limited: Limited) -> None:
    limited.rule(MAY_WRITE)
    assert limited.ask(ALICE, "orders")
    before = {limited.code("orders", index) for index in range(3)}
    limited.bitmaps.learn(ALICE, WRITE, before)
    limited.have(OTHERS)
    limited.have(OTHERS, topic("secret", range(5, 8)))
    assert {limited.code("secret", index) for index in range(3)} == before
    assert not any(limited.bitmaps.has(ALICE, WRITE, [code]) for code in before)
    limited.have(OTHERS, topic("orders", range(8, 11)))
    assert not limited.has(ALICE, "orders")
    assert limited.ask(ALICE, "orders")


def test_topics_that_change_places_in_one_catalog_have_no_bits(limited: Limited) -> None:
    limited.rule(MAY_WRITE)
    assert limited.ask(ALICE, "orders")
    limited.have(OTHERS, topic("secret", range(5, 8)))
    assert not limited.has(ALICE, "secret")


def test_bits_of_other_topics_survive_a_new_topic(limited: Limited) -> None:
    limited.rule(MAY_WRITE)
    assert limited.ask(ALICE, "orders")
    limited.have(ORDERS, OTHERS, topic("new", range(5, 6)))
    assert limited.has(ALICE, "orders")


def test_the_bitmaps_of_the_least_recent_client_go_when_there_are_too_many(
    limited: Limited,
) -> None:
    limited.rule(rule("orders", WRITE, principal="User:*"))
    released: list[int] = []
    limited.bitmaps.released = released.append
    rows = [limited.bitmaps.row_of(peer(f"u{each}")) for each in range(BITMAPS_MAX - 1)]
    assert sorted([NOBODYS, *rows]) == list(range(BITMAPS_MAX))
    assert limited.ask(peer("u0"), "orders")
    assert limited.ask(peer("u1"), "orders")
    assert limited.bitmaps.row_of(peer("late")) == rows[2]
    assert limited.bitmaps.row_of(peer("later")) == rows[3]
    assert released == rows[2:4]
    assert limited.has(peer("u1"), "orders")
    for each in range(BITMAPS_MAX):
        limited.bitmaps.row_of(peer(f"crowd{each}"))
    assert not limited.has(peer("u1"), "orders")


@pytest.mark.parametrize(("rules", "looked_at"), [(0, 1000), (1000, 0), (1000, 1000)])
def test_after_many_rules_or_with_many_bits_all_are_cleared(
    limited: Limited, monkeypatch: pytest.MonkeyPatch, rules: int, looked_at: int
) -> None:
    monkeypatch.setattr(module, "CHANGED_MAX", rules)
    monkeypatch.setattr(module, "LOOKED_AT_MAX", looked_at)
    mine = [MAY_WRITE, rule("others", WRITE)]
    limited.rule(*mine)
    assert limited.ask(ALICE, "orders")
    limited.rule(*mine, rule("others", READ))
    assert limited.has(ALICE, "orders") == (rules == looked_at)


def test_a_decision_from_before_a_rule_changed_is_not_kept(limited: Limited) -> None:
    limited.rule(MAY_WRITE)
    limited.block.publish()
    limited.shard.access.refresh()  # Between the decision and its end.
    limited.bitmaps.learn(ALICE, WRITE, [limited.code("orders")])
    assert not limited.has(ALICE, "orders")


def test_without_an_authorizer_or_with_several_logs_there_are_none(tmp_path: Path) -> None:
    assert new_shard(tmp_path / "one", ORDERS).bitmaps is None
    assert Limited(tmp_path / "two", ORDERS).shard.bitmaps is not None


names = st.sampled_from(["orders", "others", "orders-2"])
who = st.builds(peer, st.sampled_from(["alice", "bob"]), st.sampled_from([HOME, AWAY]))
operations = st.sampled_from([WRITE, READ])
rules_of = st.builds(
    lambda name, operation, permission, principal, how, host: at(
        host, rule(name, operation, permission, principal=principal, how=how)
    ),
    st.sampled_from(["orders", "others", "or", "o", "*"]),
    st.sampled_from([WRITE, READ, Operation.ALL, Operation.DESCRIBE]),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["*", "*", HOME, AWAY]),
)
change = st.one_of(
    st.lists(rules_of, max_size=5),
    st.sets(names, min_size=1),
    st.tuples(who, names, operations),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(changes=st.lists(change, max_size=20), allow_if_no_rule=st.booleans())
def test_a_bit_is_a_right_through_all_changes(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[object],
    *,
    allow_if_no_rule: bool,
) -> None:
    directory = tmp_path_factory.mktemp("bitmaps")
    limited = Limited(directory, ORDERS, allow_if_no_rule=allow_if_no_rule)
    numbers = iter(range(10, 1000))
    for each in changes:
        if isinstance(each, list):
            limited.rule(*dict.fromkeys(each))
        elif isinstance(each, set):
            kept = [known for known in limited.shard.catalog.by_id.values() if known.name in each]
            new = sorted(each - {known.name for known in kept})
            made = [
                topic(name, range(first, first + 1))
                for name, first in zip(new, numbers, strict=False)
            ]
            limited.have(*kept, *made)
        elif isinstance(each, tuple):
            by, name, operation = each
            if limited.shard.catalog.find(name) is not None:
                may = limited.ask(by, name, operation)
                assert limited.has(by, name, operation) == may
        limited.bitmaps.invariants()
