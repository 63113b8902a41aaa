"""Users log in on a page, and their sessions end."""

from dataclasses import replace

import pytest

from smq.front.logins import FORM_BYTES_MAX, HttpLogins
from smq.front.rights import HttpRights
from tests.front.console.fake_desk import Browser
from tests.front.users import SUPER, Users, logins_for, rights_for
from tests.security.issuer import claims_of, token, tokens_at

NOW_S = 1_700_000_000


def browser(logins: HttpLogins | None = None) -> Browser:
    return Browser(rights=rights_for() if logins is None else HttpRights(logins))


def test_a_page_sends_a_browser_to_the_login_and_back() -> None:
    asks = browser()
    sent = asks.get("/topics/a%20b/messages?text=x")
    assert sent.status == 303
    place = "%2Ftopics%2Fa%2520b%2Fmessages%3Ftext%3Dx"
    assert sent.headers["location"] == f"/console/login?to={place}"
    page = asks.text(sent.headers["location"])
    assert 'value="/topics/a%20b/messages?text=x"' in page
    answer = asks.log_in("alice", to="/topics?q=x")
    assert (answer.status, answer.headers["location"]) == (303, "/topics?q=x")
    assert asks.get("/topics").status == 200


def test_a_cookie_tells_no_script_and_no_other_site() -> None:
    cookie = browser().log_in("alice").headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert "max-age" not in cookie


def test_a_request_of_a_page_is_refused_and_not_sent_elsewhere() -> None:
    asks = browser()
    for headers in ({"hx_request": "true"}, {"sec_fetch_mode": "cors"}):
        answer = asks.get("/?part=cards", **headers)
        assert (answer.status, "www-authenticate" in answer.headers) == (401, False)
        assert answer.headers["hx-redirect"] == "/console/login"  # For a page that stands open.


def test_a_form_that_is_too_long_is_refused() -> None:
    asks = browser()
    answer = asks.log_in("alice", password=FORM_BYTES_MAX * "x")
    assert answer.status == 400
    assert b"a form has at most" in answer.body
    assert "set-cookie" not in answer.headers
    assert asks.log_in("alice").status == 303


@pytest.mark.parametrize(
    ("user", "password"),
    [("alice", "wrong"), ("nobody", "x"), ("alice", ""), ("", ""), ("a\0", "x")],
)
def test_a_wrong_login_says_one_thing_and_begins_no_session(user: str, password: str) -> None:
    asks = browser()
    answer = asks.log_in(user, password=password, to="/topics")
    assert answer.status == 401
    assert b"the name or the password is wrong" in answer.body
    assert b'value="/topics"' in answer.body
    assert "set-cookie" not in answer.headers
    assert "www-authenticate" not in answer.headers
    assert asks.rights.logins is not None
    assert asks.rights.logins.failed_count == 1


def test_a_password_is_no_login_at_the_console_by_a_header() -> None:
    asks = browser()
    basic = "Basic YWxpY2U6ZWNpbGE="
    assert asks.get("/", authorization=basic).status == 303
    assert asks.get("/topics", authorization=basic, sec_fetch_mode="cors").status == 401


def test_a_password_is_not_taken_where_others_see_it() -> None:
    asks = replace(browser(), host="192.168.0.7")
    answer = asks.log_in("alice")
    assert (answer.status, b"http.security.protocol" in answer.body) == (403, True)
    open_to_all = HttpRights(logins_for(Users("alice"), is_open=True))
    assert Browser(rights=open_to_all, host="192.168.0.7").log_in("alice").status == 303


def test_a_foreign_page_begins_no_session() -> None:
    asks = browser()
    for headers in ({"sec_fetch_site": "same-site"}, {"origin": "http://evil.example"}):
        assert asks.get("/console/login", **headers).status == 403


def test_a_session_ends_with_a_logout_that_shows_its_token() -> None:
    asks = browser()
    asks.log_in("alice")
    former = asks.token
    assert asks.send("/console/logout", token="wrong").status == 403
    assert asks.get("/").status == 200
    answer = asks.send("/console/logout", token=former)
    assert (answer.status, answer.headers["location"]) == (303, "/console/login")
    assert 'smq-session=""' in answer.headers["set-cookie"]
    assert asks.get("/").status == 303


def test_a_second_login_ends_the_first_session() -> None:
    asks = browser()
    asks.log_in("alice")
    first = asks.cookie
    asks.log_in("bob")
    assert len([*asks.rights.sessions]) == 1
    asks.cookie = first
    assert asks.get("/").status == 303


def test_a_session_ends_with_the_password_that_began_it() -> None:
    users = Users("alice", "bob")
    asks = browser(logins_for(users))
    asks.log_in("alice")
    users.set_password("bob", "another")
    assert asks.get("/").status == 200
    users.set_password("alice", "another")
    assert asks.get("/").status == 303
    assert asks.log_in("alice").status == 401
    assert asks.log_in("alice", password="another").status == 303


def test_a_session_holds_where_it_began() -> None:
    asks = Browser(rights=HttpRights(logins_for(Users("alice"), is_open=True)), host="10.0.0.1")
    asks.log_in("alice")
    assert asks.get("/").status == 200
    asks.host = "10.0.0.2"
    assert asks.get("/").status == 303


def test_a_token_of_an_issuer_is_a_login_where_they_are_taken() -> None:
    assert "issuer" not in browser().text("/console/login")
    asks = browser(logins_for(Users(), tokens=tokens_at(lambda: 1000 * NOW_S)))
    assert "issuer" in asks.text("/console/login")
    answer = asks.log_in("", jwt=token(claims_of(NOW_S)))
    assert answer.status == 303
    assert "alice" in asks.text("/")
    assert asks.log_in("", jwt="a.b.c").status == 401
    assert browser().log_in("", jwt=token(claims_of(NOW_S))).status == 401


@pytest.mark.parametrize("user", ["alice", SUPER])
def test_an_action_shows_the_token_of_its_session(user: str) -> None:
    asks = browser()
    asks.log_in(user)
    for other in ("", "the-token", "\u00e9", asks.cookie.partition("=")[2]):
        assert asks.post("/topics", other, name="new").status == 403
    assert asks.desk.done == []
    asks.post("/topics", asks.token, name="new")
    assert asks.desk.done == [("create", "new", None, {})]
    peer = asks.asked_for[-1]
    assert peer is not None
    assert (peer.principal.name, peer.host, peer.listener) == (user, "127.0.0.1", "HTTP")


def test_a_token_of_another_session_changes_nothing() -> None:
    asks = browser()
    asks.log_in("alice")
    token_of_alice = asks.token
    asks.log_in("bob")
    assert asks.post("/topics", token_of_alice, name="new").status == 403
    assert asks.desk.done == []


def test_without_rules_there_is_no_login() -> None:
    asks = Browser()
    assert asks.log_in("alice").status == 404
    assert asks.send("/console/logout", token="the-token").status == 404


def test_a_login_page_is_in_no_frame_and_no_cache() -> None:
    headers = browser().get("/console/login").headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"


def test_the_files_of_pages_need_no_login() -> None:
    assert browser().get("/console/static/console.css").status == 200
