"""Logins by metadata: what is taken, what is refused, and how many may wait."""

import asyncio
from base64 import b64encode
from typing import Any

import grpc
import pytest

from smq.app.agent.logins import (
    AUTHORIZATION,
    BUSY,
    NO_LOGIN,
    SEEN,
    WAITING_MAX,
    WAITING_OF_ONE_MAX,
    WRONG,
    MetadataLogins,
)
from smq.app.agent.refusals import CallRefused
from smq.front.logins import Asking, LoggedIn, LoginRefused
from tests.front.users import Users, logins_for
from tests.security.issuer import claims_of, token, tokens_at

NOW_MS = 1_700_000_000_000
HERE, FAR = "127.0.0.1", "192.0.2.7"


def basic(user: str, password: str | None = None) -> list[tuple[str, str | bytes]]:
    said = f"{user}:{user[::-1] if password is None else password}".encode()
    return [(AUTHORIZATION, f"Basic {b64encode(said).decode()}")]


def logins(*, takes_passwords: bool = True) -> MetadataLogins:
    tokens = tokens_at(lambda: NOW_MS)
    found = logins_for(Users("alice", "bob"), tokens=tokens)
    return MetadataLogins(found, takes_passwords=takes_passwords)


def found(by: MetadataLogins, metadata: Any, host: str = HERE) -> str:
    """Who has logged in, or why nobody has."""
    try:
        return asyncio.run(by.find(metadata, host)).user
    except CallRefused as refused:
        is_login_missing = refused.status is grpc.StatusCode.UNAUTHENTICATED
        return refused.sentence if is_login_missing else str(refused.status)


def test_passwords_and_tokens_log_in() -> None:
    by = logins()
    assert [found(by, basic("alice")) for _ in range(2)] == ["alice", "alice"]
    good = token(claims_of(NOW_MS / 1000))
    assert found(by, [("x", "y"), (AUTHORIZATION, f"bearer {good}")]) == "alice"
    by.invariants()


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ([], NO_LOGIN),
        ([*basic("alice"), *basic("alice")], NO_LOGIN),
        (basic("alice", "wrong"), WRONG),
        (basic("nobody"), WRONG),
        ([(AUTHORIZATION, "Basic %%%")], WRONG),
        ([(AUTHORIZATION, "Digest x")], WRONG),
        ([(AUTHORIZATION, b"\xff\xfe")], WRONG),
        ([(AUTHORIZATION, "Bearer a.b.c")], WRONG),
        ([(AUTHORIZATION, "")], WRONG),
    ],
    ids=["none", "two", "wrong", "unknown", "no base64", "other", "bytes", "no token", "empty"],
)
def test_metadata_without_a_right_login_is_refused(shown: Any, why: str) -> None:
    assert found(logins(), shown) == why


def test_a_password_is_not_looked_at_where_it_can_be_seen() -> None:
    by = logins(takes_passwords=False)
    assert found(by, basic("alice")) == SEEN
    assert found(by, [(AUTHORIZATION, f"Bearer {token(claims_of(NOW_MS / 1000))}")]) == "alice"


class Slow:
    """Logins that are done when a test says so."""

    def __init__(self) -> None:
        self.asked, self.done = 0, asyncio.Event()

    def known(self, _: Asking) -> None:
        return None

    async def find(self, asking: Asking) -> LoggedIn:
        self.asked += 1
        await self.done.wait()
        if asking.host == FAR:
            raise LoginRefused(401, WRONG)
        return LoggedIn("alice", Checked())


class Checked:
    def is_current(self) -> bool:
        return True


async def begin(
    by: MetadataLogins, count: int, host: str, user: str = "u"
) -> list[asyncio.Task[LoggedIn]]:
    """Logins with so many passwords."""
    shown = [basic(user, f"p{number}") for number in range(count)]
    tasks = [asyncio.create_task(by.find(each, host)) for each in shown]
    await asyncio.sleep(0)
    by.invariants()
    return tasks


def test_those_who_wait_are_bounded_in_all_and_of_one_address() -> None:
    async def talk() -> None:
        slow = Slow()
        by = MetadataLogins(slow, takes_passwords=True)  # type: ignore[arg-type]
        waiting = await begin(by, WAITING_OF_ONE_MAX, FAR)
        with pytest.raises(CallRefused, match=BUSY):
            await by.find(basic("other"), FAR)
        for number in range(WAITING_MAX // WAITING_OF_ONE_MAX - 1):
            waiting += await begin(by, WAITING_OF_ONE_MAX, HERE, f"u{number}")
        with pytest.raises(CallRefused, match=BUSY):
            await by.find(basic("alice"), "192.0.2.8")
        slow.done.set()
        await asyncio.wait(waiting)
        await asyncio.sleep(0)
        by.invariants()
        assert (await by.find(basic("alice"), HERE)).user == "alice"

    asyncio.run(talk())


def test_calls_with_the_same_login_share_its_check() -> None:
    async def talk() -> None:
        slow = Slow()
        by = MetadataLogins(slow, takes_passwords=True)  # type: ignore[arg-type]
        same = [
            asyncio.create_task(by.find(basic("alice"), host))
            for host in [HERE, FAR]
            for _ in "abc"
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert slow.asked == 2
        same[0].cancel()  # The check goes on for the others.
        slow.done.set()
        found = await asyncio.gather(*same, return_exceptions=True)
        assert [isinstance(each, LoggedIn) for each in found] == [False, True, True] + 3 * [False]
        assert all(isinstance(each, CallRefused) for each in found[3:])

    asyncio.run(talk())
