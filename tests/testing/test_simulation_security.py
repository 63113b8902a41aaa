"""The simulator knows logins and rights: it runs secured brokers, and knows what is sure."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from smq.app.shard.connections.newcomers_queue import Newcomer, NewcomersQueue
from smq.app.shard.requests import requests
from smq.security.acls import Operation
from smq.testing.simulation.events import KINDS, Event, events_of
from smq.testing.simulation.guests import SimGuest
from smq.testing.simulation.intruder import INTRUSIONS, Intruder
from smq.testing.simulation.mutants import MUTANTS, planted
from smq.testing.simulation.people import ALL_GUESTS, GUARDED, GUESTS, UID, password_of, rule, topic
from smq.testing.simulation.permits import DELETED, Changing, Permits, SimRight
from smq.testing.simulation.run import Workplace, run_many, simulate, workplace
from smq.testing.simulation.securing import (
    DENIAL,
    PREFIX,
    READS,
    RULES,
    SECURED_FROM,
    SECURING,
    TELLERS,
    WRITES,
    rule_number,
)
from smq.testing.simulation.strangers import NETWORK
from smq.testing.simulation.turns import WatchedQueue

SECURED = [
    seed
    for seed in range(SECURED_FROM, SECURED_FROM + 60)
    if any(each.kind in SECURING for each in events_of(seed))
]
GUEST = 0
PERMIT_WRITES, PERMIT_READS = (rule_number(GUEST, each, 0) for each in (WRITES, READS))
SCENE = [
    Event(0, "others-write", (0, 0, 0)),  # The topic is created.
    Event(300, "permit", (PERMIT_WRITES, 1)),
    Event(300, "permit", (PERMIT_READS, 1)),
    Event(700, "others-write", (0, 0, 0)),
    Event(700, "guest-writes", (GUEST, 0, 0)),
    Event(900, "guest-reads", (GUEST, 0, 3000)),
    Event(1100, "guest-reads", (GUEST, 0, 3000)),
    Event(1300, "permit", (PERMIT_READS, 0)),
    Event(1300, "permit", (PERMIT_WRITES, 0)),
    Event(1700, "guest-writes", (GUEST, 0, 0)),
    Event(1700, "others-write", (0, 0, 0)),
    Event(1900, "change-password", (GUEST, 0)),
    Event(2200, "guest-writes", (GUEST, 0, 0)),
]
NOW, LATER = 1000, 2000


@pytest.fixture(scope="module")
def place() -> Iterator[Workplace]:
    with workplace() as place:
        yield place


@pytest.mark.sim
def test_newcomers_wait_in_line_while_others_log_in(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, wait = list[Newcomer](), NewcomersQueue.wait

    def waits(queue: NewcomersQueue, connection: Newcomer) -> None:
        waiting.append(connection)
        wait(queue, connection)

    monkeypatch.setattr(NewcomersQueue, "wait", waits)
    assert simulate(SECURED[0], place).why == ""
    assert waiting


@pytest.mark.sim
def test_strangers_of_one_network_wait_in_line_with_guests(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, pop = list[bool](), WatchedQueue.pop

    def pops(queue: WatchedQueue[Newcomer]) -> Newcomer:
        are_strange = [each.startswith(NETWORK) for each in queue._address_of.values()]
        together.append(any(are_strange) and not all(are_strange))
        return pop(queue)

    monkeypatch.setattr(WatchedQueue, "pop", pops)
    crowds = [each for each in SECURED if "strangers-come" in {e.kind for e in events_of(each)}]
    for seed in crowds[:5]:
        assert simulate(seed, place).why == ""
    assert any(together)


def waiting() -> WatchedQueue[str]:
    """Two addresses of a network, and one of another."""
    queue = WatchedQueue[str]()
    for item, address in zip("abcde", (1, 1, 2, 3, 3), strict=True):
        queue.add(item, "10.8.0.1" if address == 3 else f"10.9.0.{address}")
    return queue


def popped(queue: WatchedQueue[str]) -> str:
    return "".join(queue.pop() for _ in range(len(queue)))


@pytest.mark.parametrize("name", ["addresses-take-no-turns", "networks-take-no-turns"])
def test_a_watched_queue_fails_when_somebody_is_passed_over(name: str) -> None:
    assert popped(waiting()) == "adceb"
    [mutant] = [each for each in MUTANTS if each.name == name]
    with planted(mutant), pytest.raises(AssertionError, match="two turns while"):
        popped(waiting())


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 2), st.integers(0, 3))))
def test_a_watched_queue_lets_addresses_that_come_and_go_take_turns(
    moves: list[tuple[int, int, int]],
) -> None:
    queue = WatchedQueue[str]()
    for network, address, number in moves:
        name = f"10.9.{network}.{address}"
        if network < 0 and queue:
            queue.pop()
        elif f"{name}-{number}" in queue:
            queue.discard(f"{name}-{number}")
        elif network >= 0:
            queue.add(f"{name}-{number}", name)
        queue.invariants()
    popped(queue)


@pytest.mark.sim
@pytest.mark.timeout(600)
def test_secured_brokers_keep_their_promises_in_many_simulations(place: Workplace) -> None:
    assert len(SECURED) > 15
    failed = [each for each in run_many(SECURED, place, os.cpu_count() or 1) if each.why]
    assert not failed, "\n".join(f"make sim SEED={each.seed}: {each.why}" for each in failed)


@pytest.mark.slow
def test_a_secured_seed_replays_exactly(place: Workplace) -> None:
    first, again = (simulate(SECURED[0], place, tells_details=True) for _ in range(2))
    assert first.trail == again.trail
    assert first.why == ""


@pytest.mark.sim
@pytest.mark.timeout(300)
def test_a_secured_seed_replays_exactly_in_a_process_whose_hashes_are_others() -> None:
    first = str(SECURED[0])
    command = [sys.executable, "-m", "smq.testing.simulation.run", "--digest", "--seeds", "2"]
    digests = {
        subprocess.run(
            [*command, "--first", first],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def test_a_right_is_given_used_and_taken_in_a_run(place: Workplace) -> None:
    outcome = simulate(1, place, SCENE, tells_details=True)
    assert outcome.why == ""
    said = "\n".join(outcome.trail)
    assert f"rule {PERMIT_READS} is deleted" in said
    assert "guest-0 gets password 1" in said
    assert outcome.acks == 3  # Two of others, and the one for which the guest had a right.


def test_a_record_is_found_that_was_appended_without_a_right(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "refuse_topics", lambda *_given, **_named: None)
    monkeypatch.setattr(SimGuest, "check", lambda *_given, **_named: None)
    assert "nobody might write it" in simulate(1, place, SCENE).why


def intrusions(*which: int) -> list[Event]:
    """Beside a program with transactions whose first one has ended."""
    transactions = [Event(0, "transact", (0, 7, 1, 1)), Event(400, "transact", (0, 7, 1, 1))]
    return transactions + [
        Event(800 + 40 * place, "intrude", (number, 0)) for place, number in enumerate(which)
    ]


def test_a_user_of_topics_only_is_refused_all_else_and_changes_nothing(place: Workplace) -> None:
    outcome = simulate(1, place, intrusions(*range(len(INTRUSIONS))), tells_details=True)
    assert outcome.why == ""
    answers = [each for each in outcome.trail if "intruder: " in each]
    assert len(answers) == len(INTRUSIONS)
    assert all(each.endswith("_AUTHORIZATION_FAILED") for each in answers)


@pytest.mark.parametrize(
    ("kind", "intrusion", "found"),
    [
        ("transactional-id", "_write", "nobody might write it"),
        ("group", "_commit", "group transactor-0-offsets has committed"),
        ("cluster", "_take_all_rights", "nobody has given the rule"),
        ("cluster", "_create", "nobody might create it"),
    ],
)
def test_a_change_without_a_right_is_found_when_its_answer_is_not_looked_at(
    place: Workplace, monkeypatch: pytest.MonkeyPatch, kind: str, intrusion: str, found: str
) -> None:
    monkeypatch.setattr(Intruder, "_judge", lambda *_: lambda _: None)
    [which] = [n for n, each in enumerate(INTRUSIONS) if each.__name__ == intrusion]
    [mutant] = [each for each in MUTANTS if each.name == f"nobody-asks-for-rights-to-{kind}s"]
    with planted(mutant):
        assert found in simulate(1, place, intrusions(which)).why


def test_earlier_seeds_have_no_logins_and_later_ones_have_all_kinds_of_changes() -> None:
    assert not any(each.kind in SECURING for seed in range(1, 40) for each in events_of(seed))
    assert set(KINDS) >= SECURING
    assert {each.kind for seed in SECURED for each in events_of(seed)} >= SECURING


def test_the_numbers_of_rules_are_those_of_the_table() -> None:
    order = Permits().order
    assert len(order) == RULES
    for number, guest in enumerate(ALL_GUESTS):
        wanted = rule(guest, Operation.WRITE, topic(GUARDED[1]))
        assert order[rule_number(number, WRITES, 1)] == wanted
        prefixed = order[rule_number(number, READS, PREFIX)]
        assert prefixed.pattern.pattern_type.name == "PREFIXED"
        assert order[rule_number(number, READS, DENIAL)].entry.permission.name == "DENY"
    assert order[TELLERS].entry.principal == "User:teller"


def test_a_change_without_an_answer_may_happen_until_it_is_quiet() -> None:
    changing = Changing(value=False)
    changing.begin()
    assert not changing.is_sure(NOW)
    changing.lost(value=True, now_ns=NOW)
    assert not changing.is_sure(NOW)
    assert changing.is_sure(LATER)
    changing.begin()
    changing.answered(value=True)
    assert changing.is_sure(0)  # What was lost would change nothing.
    assert not changing.is_busy
    assert changing.begun == 2


def test_a_right_is_sure_by_its_rules() -> None:
    permits = Permits()
    right = SimRight(GUESTS[0], Operation.READ, GUARDED[0])
    literal, prefix, denial = (
        permits.rules[permits.order[rule_number(0, READS, which)]] for which in (0, PREFIX, DENIAL)
    )
    permits.look(LATER, NOW)
    assert permits.standing(right, LATER).is_refused
    assert permits.refused_since(right) == NOW
    for each in (literal, prefix):
        each.begin()
        permits.look(LATER, NOW)
        assert permits.refused_since(right) is None
        each.answered(value=True)
    assert permits.standing(right, LATER).is_allowed
    prefix.begin()
    assert permits.standing(right, LATER).is_allowed  # By the other rule.
    denial.begin()
    standing = permits.standing(right, LATER)
    assert not standing.is_allowed
    assert not standing.is_refused
    denial.answered(value=True)
    assert permits.standing(right, LATER).is_refused
    assert permits.standing(right, LATER).begun == 4


def test_a_password_is_right_or_wrong_once_its_change_is_answered() -> None:
    permits, name = Permits(), GUESTS[0].name
    assert permits.is_right(name, 0, LATER)
    assert permits.is_wrong(name, 1, LATER)
    permits.passwords[name].begin()
    assert not permits.is_right(name, 0, LATER)
    assert not permits.is_wrong(name, 1, LATER)
    permits.passwords[name].answered(DELETED)
    assert permits.is_wrong(name, 0, LATER)
    assert permits.is_right("worker", 0, LATER)  # It never changes.


def test_each_guest_has_its_own_passwords_and_the_user_of_the_host_a_number() -> None:
    assert len({password_of(each.name, n) for each in GUESTS for n in range(3)}) == 9
    assert str(UID) in ALL_GUESTS[-1].name
