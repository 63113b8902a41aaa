"""Who asks by HTTP: passwords, what is remembered of them, and what a browser may not do."""

import asyncio
from asyncio import FIRST_COMPLETED
from functools import partial
from typing import Any

import pytest

from smq.app.process.token_keys import NoKeys
from smq.front import logins as modules
from smq.front.logins import KNOWN_MAX, Asking, HttpLogins, LoginRefused, Passwords
from smq.front.sessions import BrowserSessions
from smq.security.acls import Operation
from smq.security.decoys import Decoys
from smq.security.plain import PlainServer
from smq.security.principals import Principal
from smq.security.rights import Rights
from smq.security.sasl import Work
from smq.security.tokens import Signed
from tests.front.users import SUPER, Users, as_user, logins_for, may
from tests.security.issuer import (
    LIFETIME_SECONDS,
    SKEW_SECONDS,
    claims_of,
    signed,
    token,
    tokens_at,
)

HERE = "127.0.0.1"


def log_in(
    logins: HttpLogins,
    headers: dict[str, str],
    method: str = "GET",
    *,
    is_private: bool = True,
) -> Rights:
    return asyncio.run(logins.rights(Asking(method, raw(headers), HERE, is_private)))


def raw(headers: dict[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in headers.items()}


def status(logins: HttpLogins, headers: dict[str, str], method: str = "GET") -> int:
    try:
        log_in(logins, headers, method)
    except LoginRefused as refused:
        return refused.answer.status_code
    return 200


def test_a_user_has_the_rights_of_its_name() -> None:
    logins = logins_for(Users("alice", SUPER), may("alice", Operation.READ, "orders"))
    rights = log_in(logins, as_user("alice"))
    assert rights.topic(Operation.READ, "orders")
    assert not rights.topic(Operation.WRITE, "orders")
    assert (rights.peer.host, rights.peer.listener) == (HERE, "HTTP")
    assert log_in(logins, as_user(SUPER)).is_unlimited


def test_a_login_says_by_what_it_was_checked_also_when_it_is_remembered() -> None:
    users = Users("alice")
    logins = logins_for(users)
    first = asyncio.run(logins.find(Asking("GET", raw(as_user("alice")), HERE, is_private=True)))
    again = logins.known(Asking("GET", raw(as_user("alice")), HERE, is_private=True))
    assert again is not None
    assert (first.user, again.user) == ("alice", "alice")
    assert first.checked.is_current()
    users.set_password("alice", "another")
    assert not again.checked.is_current()
    assert logins.known(Asking("GET", raw(as_user("alice")), HERE, is_private=True)) is None


def test_a_wrong_password_and_an_unknown_user_get_the_same_answer() -> None:
    logins = logins_for(Users("alice"))
    answers = []
    for headers in (as_user("alice", "wrong"), as_user("nobody"), as_user("unix/root")):
        with pytest.raises(LoginRefused) as refused:
            log_in(logins, {**headers})
        answers.append((refused.value.answer.status_code, refused.value.answer.body))
    assert answers[0][0] == 401
    assert len(set(answers)) == 1
    assert logins.failed_count == 3


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Basic",
        "Basic ",
        "Basic !",
        "Basic YWxpY2U=",
        "Basic Omxp",
        "Basic YWxpY2U6",
        "Bearer x",
    ],
    ids=["none", "alone", "empty", "no-base64", "no-colon", "no-user", "no-password", "a-token"],
)
def test_a_header_that_names_no_user_asks_for_one(authorization: str) -> None:
    with pytest.raises(LoginRefused) as refused:
        log_in(logins_for(Users("alice")), {"authorization": authorization})
    answer = refused.value.answer
    assert (answer.status_code, answer.headers["www-authenticate"][:6]) == (401, "Basic ")


def test_of_too_many_late_answers_the_oldest_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for one keeps nobody else from a login."""
    monkeypatch.setattr(modules, "LATE_MAX", 2)
    users = Users("alice")
    passwords = Passwords(lambda: PlainServer(users, Decoys(b"secret")), lambda: users.version)
    logins = HttpLogins(passwords, partial(Rights, None), 3600.0)

    async def tried(password: str) -> int:
        asking = Asking("GET", raw(as_user("alice", password)), HERE, is_private=True)
        try:
            await logins.rights(asking)
        except LoginRefused as refused:
            return refused.answer.status_code
        return 200

    async def run() -> None:
        late = [asyncio.create_task(tried("wrong")) for _ in range(5)]
        done, waiting = set[asyncio.Task[int]](), set(late)
        while len(done) < 3:
            ended, waiting = await asyncio.wait(waiting, timeout=20, return_when=FIRST_COMPLETED)
            assert ended, "the oldest is answered"
            done |= ended
        assert done == set(late[:3])
        assert {each.result() for each in done} == {401}
        assert await asyncio.wait_for(tried("ecila"), 20) == 200
        for each in waiting:
            each.cancel()

    asyncio.run(run())


def test_a_password_with_a_zero_byte_does_not_name_another_user() -> None:
    headers = as_user("x", "\0alice\0ecila")
    assert status(logins_for(Users("alice")), {**headers}) == 401


def test_a_changed_password_holds_at_once_though_the_old_one_is_remembered() -> None:
    users = Users("alice")
    logins = logins_for(users)
    assert status(logins, as_user("alice")) == 200
    users.set_password("alice", "another")
    assert status(logins, as_user("alice")) == 401
    assert status(logins, as_user("alice", "another")) == 200


def test_a_password_is_not_remembered_beyond_a_change_of_users() -> None:
    """Another credential of the user may count by now, though the former is the same still."""
    users = Users("alice")
    logins = logins_for(users)
    log_in(logins, as_user("alice"))
    users.version += 1
    asking = Asking("GET", raw(as_user("alice")), HERE, is_private=True)
    assert logins.remembered(asking) is None
    log_in(logins, as_user("alice"))
    assert logins.remembered(asking) is not None


def test_a_password_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logins = logins_for(Users("alice"))
    log_in(logins, as_user("alice"))

    def begin() -> PlainServer:
        raise AssertionError("it was hashed already")

    monkeypatch.setattr(logins, "_passwords", logins._passwords._replace(begin=begin))
    assert log_in(logins, as_user("alice")).peer.principal.name == "alice"


def test_few_passwords_are_remembered() -> None:
    names = list(map(str, range(KNOWN_MAX + 5)))
    logins = logins_for(Users(*names))
    for name in names:
        log_in(logins, as_user(name))
    assert len(logins._known) == KNOWN_MAX


def test_a_password_that_changes_while_it_is_hashed_is_looked_at_again() -> None:
    users = Users("alice")
    users.set_password("alice", "old")

    def begin() -> PlainServer:
        server = PlainServer(users, Decoys(b"secret"))
        respond = server.respond

        def changed(token: bytes) -> Work:
            work = respond(token)
            users.set_password("alice", "new")
            return work

        server.respond = changed  # type: ignore[method-assign]
        return server

    logins = HttpLogins(Passwords(begin, lambda: users.version), partial(Rights, None), 0.0)
    assert status(logins, as_user("alice", "new")) == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_change_needs_a_header_that_another_sites_page_cannot_send(method: str) -> None:
    logins = logins_for(Users("alice"))
    stored = {"authorization": as_user("alice")["authorization"]}
    assert status(logins, stored) == 200
    assert status(logins, stored, method) == 403
    assert status(logins, as_user("alice"), method) == 200


def test_a_password_is_not_taken_where_others_see_it() -> None:
    headers = as_user("alice")
    with pytest.raises(LoginRefused, match=r"http\.security\.protocol"):
        log_in(logins_for(Users("alice")), headers, is_private=False)
    log_in(logins_for(Users("alice"), is_open=True), headers, is_private=False)


NOW_S = 1_700_000_000


def shown(jwt: str) -> dict[str, str]:
    return {"authorization": f"Bearer {jwt}"}


def test_a_token_names_a_user_and_is_a_header_that_a_change_needs() -> None:
    logins = logins_for(Users(), tokens=tokens_at(lambda: 1000 * NOW_S))
    for method in ("GET", "POST"):
        rights = log_in(logins, shown(token(claims_of(NOW_S))), method)
        assert rights.peer.principal == Principal("User", "alice")
    with pytest.raises(LoginRefused, match=r"http\.security\.protocol"):
        log_in(logins, shown(token(claims_of(NOW_S))), is_private=False)


@pytest.mark.parametrize(
    "jwt",
    [
        "",
        "a.b.c",
        "x" * 1_000_000,
        "\N{LATIN SMALL LETTER E WITH ACUTE}",
        signed(b'{"alg":"none"}', b"{}", "none"),
    ],
    ids=["none", "no-token", "long", "no-ascii", "unsigned"],
)
def test_a_bad_token_is_refused_as_a_bad_password_is(jwt: str) -> None:
    logins = logins_for(Users("alice"), tokens=tokens_at(lambda: 1000 * NOW_S))
    headers = {"authorization": f"Bearer {jwt}"}
    sent = {b"authorization": headers["authorization"].encode("latin-1")}
    with pytest.raises(LoginRefused) as refused:
        asyncio.run(logins.rights(Asking("GET", sent, HERE, is_private=True)))
    assert refused.value.answer.status_code == 401


KIDS: list[dict[str, Any]] = [{}, {"kid": "rsa"}, {"kid": None}]


@pytest.mark.parametrize(
    ("other", "made"),
    [
        ({"aud": None}, {}),
        ({"aud": "another"}, {}),
        ({"iss": "https://evil.example"}, {}),
        ({"exp": None}, {}),
        ({"exp": NOW_S - SKEW_SECONDS}, {}),
        ({"iat": NOW_S + SKEW_SECONDS + 1}, {}),
        ({"nbf": NOW_S + SKEW_SECONDS + 1}, {}),
        ({"sub": None}, {}),
        ({"sub": "unix/root"}, {}),
        ({}, {"alg": "HS256", "key": "oct"}),
        ({}, {"alg": "ES256", "key": "p-256"}),
        ({}, {"alg": "RS256", "key": "rsa another"}),
    ],
    ids=[
        *("no-audience", "another-audience", "another-issuer", "no-end", "ended"),
        *("from-the-future", "not-yet", "no-user", "a-user-of-the-host"),
        *("hmac", "a-key-of-another-type", "an-unknown-key"),
    ],
)
@pytest.mark.parametrize("header", KIDS, ids=["its-own-kid", "the-issuers-kid", "no-kid"])
def test_a_token_that_is_not_the_issuers_opens_nothing(
    other: dict[str, Any], made: dict[str, Any], header: dict[str, Any]
) -> None:
    logins = logins_for(Users("alice"), tokens=tokens_at(lambda: 1000 * NOW_S))
    jwt = token(claims_of(NOW_S, **other), **{**made, **header})
    for method in ("GET", "PUT"):
        assert status(logins, shown(jwt), method) == 401
    assert logins.failed_count == 2


def test_a_token_ends() -> None:
    now_s = [NOW_S]
    logins = logins_for(Users(), tokens=tokens_at(lambda: 1000 * now_s[0]))
    jwt = token(claims_of(NOW_S))
    assert status(logins, shown(jwt)) == 200
    now_s[0] += LIFETIME_SECONDS + SKEW_SECONDS
    assert status(logins, shown(jwt)) == 401


def test_without_an_issuer_a_token_is_no_login() -> None:
    assert status(logins_for(Users()), shown(token(claims_of(NOW_S)))) == 401


def test_a_token_that_was_right_is_remembered_until_it_ends_or_the_keys_change() -> None:
    now_s = [NOW_S]
    tokens = tokens_at(lambda: 1000 * now_s[0])
    logins = logins_for(Users(), tokens=tokens)
    asking = Asking("GET", raw(shown(token(claims_of(NOW_S)))), HERE, is_private=True)
    assert logins.remembered(asking) is None
    asyncio.run(logins.rights(asking))
    assert logins.remembered(asking) is not None
    keys, tokens.keys = tokens.keys, NoKeys()
    assert logins.remembered(asking) is None
    tokens.keys = keys
    assert logins.remembered(asking) is not None
    now_s[0] += LIFETIME_SECONDS
    assert logins.remembered(asking) is None


def test_a_key_that_is_withdrawn_ends_what_its_token_began() -> None:
    tokens = tokens_at(lambda: 1000 * NOW_S)
    logins, jwt = logins_for(Users(), tokens=tokens), token(claims_of(NOW_S))
    found = asyncio.run(logins.by_token(jwt, Asking("POST", {}, HERE, is_private=True)))
    sessions = BrowserSessions()
    session_id = sessions.begin(found, HERE, 0.0)
    assert sessions.visit(session_id, HERE, 1.0, is_use=True)
    tokens.keys = NoKeys()
    assert sessions.visit(session_id, HERE, 1.0, is_use=True) is None


def test_a_token_whose_key_is_withdrawn_while_it_is_checked_is_refused() -> None:
    tokens = tokens_at(lambda: 1000 * NOW_S)
    keys = tokens.keys

    class Withdrawn:
        def opened(self, text: str) -> Signed:
            tokens.keys = NoKeys()
            return keys.opened(text)

        def has(self, key: str) -> bool:
            return keys.has(key)

    tokens.keys = Withdrawn()
    assert status(logins_for(Users(), tokens=tokens), shown(token(claims_of(NOW_S)))) == 401


def test_the_head_of_a_request_shows_whether_it_needs_a_check() -> None:
    logins = logins_for(Users("alice"), tokens=tokens_at(lambda: 1000 * NOW_S))
    jwt = shown(token(claims_of(NOW_S)))
    for headers in (as_user("alice"), jwt):
        value = headers["authorization"].encode()
        head = b"GET / HTTP/1.1\r\nhost: x\r\nAuthorization:  %s\r\n\r\n" % value
        assert not logins.user_of(head)
        log_in(logins, headers)
        assert logins.user_of(head) == "User:alice"
        assert not logins.user_of(head.replace(b"Authorization", b"X-Other"))
        assert not logins.user_of(head.replace(b"host", b"x" * 10_000))
    for value in (b"", b"Basic", b"Basic !", b"Bearer x", b"\xff\xff \xff"):
        assert not logins.user_of(b"GET / HTTP/1.1\r\nauthorization:%s\r\n\r\n" % value)
