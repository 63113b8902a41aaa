"""Users, rules, sessions and denials: for whom, and what a page asks and changes."""

from threading import Thread, current_thread, main_thread

import pytest

from smq.front.console.pages import access
from smq.security.acls import CLUSTER_NAME, AclBinding, Operation, ResourceType, described
from smq.security.audit import AdminAct
from tests.front.console.fake_desk import HOSTILE, Browser
from tests.front.users import SUPER, may_with_cluster, rights_for

DESCRIBE = may_with_cluster("alice", Operation.DESCRIBE)
CONFIGS = may_with_cluster("alice", Operation.DESCRIBE_CONFIGS)
ALTER = may_with_cluster("alice", Operation.ALTER)


def logged_in(*rules: AclBinding, user: str = "alice") -> Browser:
    asks = Browser(rights=rights_for(*rules))
    assert asks.log_in(user).status == 303
    return asks


@pytest.mark.parametrize(
    ("path", "rules"),
    [
        ("/users", [DESCRIBE]),
        ("/rules", [DESCRIBE]),
        ("/rules?name=clicks", [DESCRIBE, CONFIGS]),
        ("/denied", [ALTER]),
    ],
)
def test_a_page_is_for_who_has_its_rights_on_the_cluster(
    path: str, rules: list[AclBinding]
) -> None:
    refused = logged_in()
    assert refused.get(path).status == 403
    assert refused.desk.done == []
    for number in range(len(rules)):
        assert logged_in(*rules[:number], *rules[number + 1 :]).get(path).status == 403
    for asks in (logged_in(*rules), logged_in(user=SUPER)):
        page = asks.text(path)
        assert "<script>" not in page.partition("<main")[2]


def test_users_are_listed_with_their_mechanisms_and_found_by_name() -> None:
    asks = logged_in(DESCRIBE)
    assert "SCRAM-SHA-256, 4096 iterations" in asks.text("/users")
    assert "SCRAM" not in asks.text("/users?q=script")


def test_a_user_is_deleted_when_the_name_is_typed_twice() -> None:
    asks = logged_in(user=SUPER)
    for confirm in ("", "bo"):
        assert asks.post("/users/delete", asks.token, user="bob", confirm=confirm).status == 400
    assert asks.post("/users/delete", asks.token, user="", confirm="").status == 400
    assert asks.desk.done == []
    assert asks.post("/users/delete", asks.token, user="bob", confirm="bob").status == 204
    assert asks.desk.done == [("delete user", "bob")]


def test_a_question_about_a_topic_is_answered_for_an_address() -> None:
    asks = logged_in(user=SUPER)
    page = asks.text("/rules?kind=topic&name=clicks&operation=WRITE&host=2001:db8::1")
    host = "2001:db8:0:0:0:0:0:1"
    assert asks.desk.done == [
        ("rulings", Operation.WRITE, ResourceType.TOPIC, "clicks", host),
        ("rules", ResourceType.TOPIC, "clicks"),
    ]
    assert "a rule allows it" in page
    assert "ALLOW User:alice from * READ on TOPIC clicks (LITERAL)" in page
    asks.text("/rules?kind=cluster")
    assert asks.desk.done[-1] == ("rules", ResourceType.CLUSTER, CLUSTER_NAME)
    assert "Who may, and why" not in asks.text("/rules")
    assert asks.desk.done[-1] == ("rules", ResourceType.ANY, "")


def test_a_thread_spells_out_the_rules_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their names may be long."""
    threads = set[Thread]()

    def noted(binding: AclBinding) -> str:
        threads.add(current_thread())
        return described(binding)

    monkeypatch.setattr(access, "described", noted)
    assert "User:alice" in logged_in(user=SUPER).text("/rules")
    assert threads
    assert main_thread() not in threads


@pytest.mark.parametrize("query", ["kind=x", "operation=x", "host=x", "kind=user&name=y"])
def test_a_question_that_there_is_not_is_refused(query: str) -> None:
    assert logged_in(user=SUPER).get(f"/rules?{query}").status == 400


def test_a_user_sees_and_ends_its_own_sessions_and_a_super_user_all() -> None:
    alice = logged_in()
    bob = Browser(rights=alice.rights)
    root = Browser(rights=alice.rights)
    bob.log_in("bob")
    root.log_in(SUPER)
    page = alice.text("/sessions").partition("<main")[2]
    assert "1 session" in page
    assert "this one" in page
    assert "bob" not in page
    page = root.text("/sessions")
    assert "3 sessions" in page
    numbers = {each.principal.name: str(each.number) for each in alice.rights.sessions}
    assert alice.post("/sessions/end", alice.token, number=numbers["bob"]).status == 400
    assert bob.get("/").status == 200
    assert root.post("/sessions/end", root.token, number=numbers["bob"]).status == 204
    assert bob.get("/").status == 303
    [(peer, api, act)] = root.acts
    assert root.sessions_at_acts == [3], "its line comes before its end"
    assert (peer.principal.name, api) == (SUPER, "HTTP POST /sessions")
    assert act == AdminAct("DELETE", "SESSION", "User:bob", detail="from 127.0.0.1")
    assert alice.post("/sessions/end", alice.token, number=numbers["alice"]).status == 204
    assert alice.acts == [], "one's own make no line"
    assert alice.get("/").status == 303


def test_denials_show_names_that_hide_nothing() -> None:
    page = logged_in(ALTER).text("/denied").partition("<main")[2]
    assert "User:bob" in page
    assert "10.0.0.9" in page
    assert HOSTILE not in page


def test_without_rules_there_are_no_sessions() -> None:
    asks = Browser()
    assert "0 sessions" in asks.text("/sessions")
    assert asks.post("/sessions/end", number="1").status == 400
    assert asks.get("/users").status == asks.get("/denied").status == 200
