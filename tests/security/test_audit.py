"""Lines of the audit log: whole, bounded, and of one meaning, whatever a name holds."""

import json
from typing import Any

import pytest

from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.security.audit import (
    DENIALS,
    DETAIL_MAX,
    NAME_MAX,
    OF_ONE_MAX,
    OFF,
    TOLD_MAX,
    WINDOW_MS,
    AdminAct,
    Audit,
    Event,
    Recurring,
    error_name,
    line_of,
)
from smq.security.principals import Peer, Principal

ALICE = Peer(Principal("User", "alice"), "10.0.0.7", "CLIENTS")
BOB = Peer(Principal("User", "bob"), "10.0.0.8", "CLIENTS")
WALL_MS = 1_700_000_000_123
FORGED = 'a\n{"event": "act"}\r\x00\x1b[2J\x7f\x85\u2028\u2029\u202e\u2066\ud800"\\'


def at(ms: int) -> Now:
    return Now(ms, WALL_MS + ms)


def told(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def test_an_act_says_who_did_what_to_what() -> None:
    audit = Audit()
    act = AdminAct("CREATE", "TOPIC", "orders", detail="partitions 3")
    audit.act(ALICE, "CreateTopics", act, Now(5, WALL_MS))
    assert told(audit.take_acts()) == [
        {
            "time": "2023-11-14T22:13:20.123Z",
            "ms": WALL_MS,
            "event": "act",
            "principal": "User:alice",
            "host": "10.0.0.7",
            "listener": "CLIENTS",
            "api": "CreateTopics",
            "operation": "CREATE",
            "resource_type": "TOPIC",
            "resource": "orders",
            "detail": "partitions 3",
        }
    ]
    assert audit.take_acts() == []
    assert audit.take_accesses(at(0)) == []


def test_a_failed_act_has_its_error_and_a_line_among_the_accesses() -> None:
    audit = Audit()
    act = AdminAct("CREATE", "TOPIC", "orders", ErrorCode.TOPIC_ALREADY_EXISTS, "partitions 3")
    audit.act(ALICE, "CreateTopics", act, at(0))
    assert audit.take_acts() == []
    [failed] = told(audit.take_accesses(at(0)))
    same = {
        "event": "failed act",
        "principal": "User:alice",
        "host": "10.0.0.7",
        "listener": "CLIENTS",
        "api": "CreateTopics",
        "operation": "CREATE",
        "resource_type": "TOPIC",
        "resource": "orders",
        "error": "TOPIC_ALREADY_EXISTS",
        "detail": "partitions 3",
    }
    assert same.items() <= failed.items()


def test_failed_acts_of_one_asker_are_bounded_and_none_is_uncounted() -> None:
    audit, lines = Audit(), []
    audit.take_accesses(at(0))
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    for number in range(20_000):
        act = AdminAct("DELETE", "TOPIC", f"{number}" + "n" * 10_000, unknown, "d" * 10_000)
        audit.act(ALICE, "DeleteTopics", act, at(0))
        if number % 1000 == 0:
            audit.invariants()
            lines += audit.take_accesses(at(number))
    audit.act(BOB, "CreateTopics", AdminAct("CREATE", "TOPIC", "orders"), at(0))
    audit.act(BOB, "DeleteTopics", AdminAct("DELETE", "TOPIC", "none", unknown), at(0))
    audit.denied(BOB, "Fetch", "READ", "TOPIC", "orders")
    [done] = told(audit.take_acts())
    assert (done["principal"], done["resource"]) == ("User:bob", "orders")
    lines += audit.take_accesses(at(WINDOW_MS))
    found = told(lines)
    assert len([each for each in found if each.get("principal") == "User:alice"]) == OF_ONE_MAX
    assert sum(each.get("count", 1) for each in found if each["event"] != "denied") == 20_001
    assert {each["event"] for each in found if each.get("principal") == "User:bob"} == {
        "failed act",
        "denied",
    }
    assert max(map(len, lines)) < 2 * (NAME_MAX + DETAIL_MAX)


@pytest.mark.parametrize("field", Event._fields)
def test_a_forged_name_stays_in_its_line_and_its_field(field: str) -> None:
    line = line_of(Event("act")._replace(**{field: FORGED}), WALL_MS)
    assert line.isprintable()
    assert json.loads(line)[field] == FORGED
    assert len(line.splitlines()) == 1


def test_letters_of_all_languages_can_be_read() -> None:
    assert '"resource": "Bücher 本"' in line_of(Event("act", resource="Bücher 本"), WALL_MS)


def test_names_are_cut() -> None:
    line = json.loads(line_of(Event("act", resource="n" * 10**6, detail="d" * 10**6), WALL_MS))
    assert line["resource"] == "n" * NAME_MAX + "…"
    assert line["detail"] == "d" * DETAIL_MAX + "…"


@pytest.mark.parametrize("code", sorted(DENIALS))
def test_a_refused_change_is_no_act(code: ErrorCode) -> None:
    audit = Audit()
    audit.act(ALICE, "DeleteTopics", AdminAct("DELETE", "TOPIC", "orders", code), at(0))
    assert audit.take_acts() == audit.take_accesses(at(0)) == []


def test_a_denial_is_written_at_once_and_then_counted_for_a_minute() -> None:
    audit, lines = Audit(), []
    audit.take_accesses(at(0))
    for ms in range(0, WINDOW_MS + 1000, 1000):
        audit.denied(ALICE, "Fetch", "READ", "TOPIC", "orders")
        lines += told(audit.take_accesses(at(ms)))
        audit.invariants()
    first, further = lines
    assert "count" not in first
    assert further["count"] == 60
    same = {"event": "denied", "principal": "User:alice", "operation": "READ", "resource": "orders"}
    assert same.items() <= first.items()
    assert same.items() <= further.items()


def test_a_flood_of_denials_is_bounded_and_none_is_uncounted() -> None:
    audit, lines = Audit(), []
    audit.take_accesses(at(0))
    for number in range(20_000):
        user = Peer(Principal("User", f"u{number % 7}"), "10.0.0.7", "CLIENTS")
        audit.denied(user, "Fetch", "READ", "TOPIC", f"topic{number}")
        if number % 1000 == 0:
            audit.invariants()
            lines += audit.take_accesses(at(number))
    lines += audit.take_accesses(at(WINDOW_MS))
    assert len(lines) <= TOLD_MAX + 1
    assert sum(line.get("count", 1) for line in told(lines)) == 20_000
    assert told(lines)[-1]["event"] == "others"


def test_one_asker_does_not_hide_the_denials_of_others() -> None:
    denials = Recurring()
    for number in range(10 * TOLD_MAX):
        denials.note(Event("denied", principal="User:mallory", resource=str(number)))
    denials.note(Event("denied", principal="User:bob", resource="orders"))
    denials.invariants()
    told_of = told(denials.take(at(0)))
    assert sum(line.get("principal") == "User:mallory" for line in told_of) == OF_ONE_MAX
    assert any(line.get("principal") == "User:bob" for line in told_of)


def test_a_network_of_addresses_is_one_asker() -> None:
    audit = Audit()
    for number in range(1000):
        audit.login_failed(f"2001:db8:0:0:0:0:0:{number:x}", "CLIENTS", "SCRAM-SHA-256")
    audit.invariants()
    assert len(audit.take_accesses(at(0))) == OF_ONE_MAX + 1


def test_logins_are_written_beside_any_number_of_failed_ones() -> None:
    audit = Audit()
    for number in range(10 * TOLD_MAX):
        audit.login_failed(f"10.0.{number // 250}.{number % 250}", "CLIENTS", "PLAIN")
    audit.logged_in(ALICE, "SCRAM-SHA-256")
    [login] = [each for each in told(audit.take_accesses(at(0))) if each["event"] == "login"]
    assert login["principal"] == "User:alice"
    assert login["detail"] == "SCRAM-SHA-256"


def test_a_failed_login_names_no_principal() -> None:
    audit = Audit()
    audit.login_failed("10.0.0.7", "CLIENTS", "PLAIN")
    [failed] = told(audit.take_accesses(at(0)))
    assert failed["host"] == "10.0.0.7"
    assert "principal" not in failed


def test_an_audit_that_is_off_keeps_nothing() -> None:
    OFF.act(ALICE, "CreateTopics", AdminAct("CREATE", "TOPIC", "orders"), at(0))
    OFF.act(ALICE, "CreateTopics", AdminAct("CREATE", "TOPIC", "", 42), at(0))
    OFF.denied(ALICE, "Fetch", "READ", "TOPIC", "orders")
    OFF.logged_in(ALICE, "PLAIN")
    OFF.login_failed("10.0.0.7", "CLIENTS", "PLAIN")
    OFF.invariants()
    assert OFF.take_acts() == OFF.take_accesses(at(0)) == []


def test_errors_have_kafkas_names() -> None:
    assert error_name(0) == ""
    assert error_name(36) == "TOPIC_ALREADY_EXISTS"
    assert error_name(30_000) == "30000"
