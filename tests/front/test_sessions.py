"""Sessions of browsers: bounds, ends, and that an id opens nothing elsewhere."""

import secrets

import pytest

from smq.front.logins import LoggedIn
from smq.front.sessions import AGE_S, IDLE_S, OF_USER_MAX, SESSIONS_MAX, BrowserSessions, Visit
from smq.security.principals import Principal

HERE = "10.0.0.1"


class Credential:
    """What a login was checked with."""

    def __init__(self) -> None:
        self.holds = True

    def is_current(self) -> bool:
        return self.holds


def holder(user: str = "alice", **fields: float) -> LoggedIn:
    return LoggedIn(user, Credential(), **fields)


def visited(
    sessions: BrowserSessions, session_id: str, now_s: float = 0.0, host: str = HERE
) -> Visit | None:
    found = sessions.visit(session_id, host, now_s, is_use=True)
    sessions.invariants()
    return found


def test_a_session_has_its_user_and_a_token_of_its_own() -> None:
    sessions = BrowserSessions()
    ids = [sessions.begin(holder(name), HERE, 0.0) for name in ("alice", "bob")]
    visits = [visited(sessions, each) for each in ids]
    assert [each and each.session.principal for each in visits] == [
        Principal("User", "alice"),
        Principal("User", "bob"),
    ]
    tokens = [each.token for each in visits if each]
    assert len({*ids, *tokens}) == 4
    assert visits == [visited(sessions, each) for each in ids]
    assert visited(BrowserSessions(), ids[0]) is None


@pytest.mark.parametrize("given", ["", "x", "\N{SNOWMAN}"])
def test_another_id_is_no_session(given: str) -> None:
    sessions = BrowserSessions()
    session_id = sessions.begin(holder(), HERE, 0.0)
    found = visited(sessions, session_id)
    assert found is not None
    assert visited(sessions, given) is None
    assert visited(sessions, found.token) is None


def test_no_id_is_kept() -> None:
    sessions = BrowserSessions()
    session_id = sessions.begin(holder(), HERE, 0.0)
    assert session_id.encode() not in sessions._by_hash
    assert session_id not in repr([*sessions])


def test_a_session_holds_at_its_address_and_in_its_network() -> None:
    sessions = BrowserSessions()
    session_id = sessions.begin(holder(), "2001:db8:0:0:0:0:0:1", 0.0)
    assert visited(sessions, session_id, host="2001:db8:0:0:0:0:0:9")
    assert not visited(sessions, session_id, host="2001:db8:0:1:0:0:0:1")
    assert not visited(sessions, session_id, host=HERE)


def test_a_session_ends_when_it_is_old_though_it_is_used() -> None:
    sessions, now_s = BrowserSessions(), 0.0
    session_id = sessions.begin(holder(), HERE, now_s)
    while now_s < AGE_S:
        assert visited(sessions, session_id, now_s)
        now_s += IDLE_S - 1
    assert not visited(sessions, session_id, now_s)
    assert not [*sessions]


def test_a_session_ends_when_nothing_is_asked_for() -> None:
    sessions = BrowserSessions()
    session_id = sessions.begin(holder(), HERE, 0.0)
    assert sessions.visit(session_id, HERE, IDLE_S - 1, is_use=False)  # A page asks by itself.
    assert not visited(sessions, session_id, IDLE_S)


def test_a_session_ends_with_its_token_of_an_issuer() -> None:
    sessions = BrowserSessions()
    session_id = sessions.begin(holder(seconds=5.0), HERE, 10.0)
    assert visited(sessions, session_id, 14.9)
    assert not visited(sessions, session_id, 15.0)
    assert not visited(sessions, sessions.begin(holder(seconds=-1.0), HERE, 10.0), 10.0)


def test_a_session_ends_with_the_credential_that_began_it() -> None:
    sessions = BrowserSessions()
    alice = holder()
    session_id = sessions.begin(alice, HERE, 0.0)
    assert isinstance(alice.checked, Credential)
    alice.checked.holds = False
    assert not visited(sessions, session_id)
    alice.checked.holds = True  # The same password again is another credential.
    assert not visited(sessions, session_id)


def test_a_session_is_ended_once() -> None:
    sessions = BrowserSessions()
    ids = [sessions.begin(holder(), HERE, 0.0) for _ in range(2)]
    found = visited(sessions, ids[0])
    assert found is not None
    for _ in range(2):
        sessions.end(found.session)
    assert not visited(sessions, ids[0])
    assert visited(sessions, ids[1])


def test_a_user_has_few_sessions_and_loses_the_one_that_was_used_longest_ago() -> None:
    sessions = BrowserSessions()
    ids = [sessions.begin(holder(), HERE, 0.0) for _ in range(OF_USER_MAX)]
    assert visited(sessions, ids[0])
    other = sessions.begin(holder("bob"), HERE, 0.0)
    ids.append(sessions.begin(holder(), HERE, 0.0))
    assert [bool(visited(sessions, each)) for each in ids] == [
        True,
        False,
        *[True] * (OF_USER_MAX - 1),
    ]
    assert visited(sessions, other)


def test_there_are_few_sessions_in_all() -> None:
    sessions = BrowserSessions()
    ids = [sessions.begin(holder(str(user)), HERE, 0.0) for user in range(SESSIONS_MAX + 1)]
    assert len([*sessions]) == SESSIONS_MAX
    assert not visited(sessions, ids[0])
    assert visited(sessions, ids[-1])


def test_sessions_that_are_over_make_room() -> None:
    sessions = BrowserSessions()
    for user in range(SESSIONS_MAX):
        sessions.begin(holder(str(user)), HERE, 0.0)
    sessions.begin(holder(), HERE, IDLE_S)
    assert len([*sessions]) == 1


def test_a_number_does_not_tell_how_many_logins_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    chances = iter([4, 4, 0])
    monkeypatch.setattr(secrets, "randbelow", lambda most: next(chances) % most)
    sessions = BrowserSessions()
    for _ in range(2):
        sessions.begin(holder(), HERE, 0.0)
    assert [each.number for each in sessions] == [5, 1]
