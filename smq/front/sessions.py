"""Sessions of browsers: who has logged in on the console's page, until that ends.

A session is known by a random id in a cookie, of which only a keyed hash is kept. It ends

    with a logout, or when its user or a super user ends it,
    when the user's credential is changed or deleted, or the token with which it began ends or the
    issuer withdraws the key that has signed it,
    after AGE_S, or when nothing was asked for IDLE_S (monotonic time),
    when its user has more than OF_USER_MAX, or all have more than SESSIONS_MAX: the one that was
    used longest ago,
    with the front.

It holds where it has begun: browsers send cookies to all ports of a host, so that another server
there may see one; it cannot use it from another address.

What changes something shows a token of the session besides, which only its pages have.
"""

import hmac
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from smq.front.logins import LoggedIn
from smq.security.addresses import network_of
from smq.security.principals import USER, Principal

ID_BYTES = 32  # Nobody can guess it.
AGE_S = 12 * 3600.0
IDLE_S = 3600.0
SESSIONS_MAX = 1000
OF_USER_MAX = 10
NUMBER_MAX = 999_999  # It is typed.
_OF_TOKEN = b"token "  # Makes a token of what makes a hash of an id.


@dataclass(slots=True, eq=False)
class BrowserSession:
    """One session. Times are monotonic.

    number   names it, and opens nothing; by chance, as a count would tell of others' logins
    network  where it holds
    """

    number: int
    holder: LoggedIn
    host: str
    began_s: float
    used_s: float

    @property
    def principal(self) -> Principal:
        return Principal(USER, self.holder.user)

    def holds(self, now_s: float) -> bool:
        """Whether it has not ended by itself."""
        ends_s = min(self.began_s + min(AGE_S, self.holder.seconds), self.used_s + IDLE_S)
        return now_s < ends_s and self.holder.checked.is_current()


class Visit(NamedTuple):
    """A request of a session, and the token that a change has to show."""

    session: BrowserSession
    token: str


class BrowserSessions:
    """Those of one front, the one that was used longest ago first.

    Invariant: there are at most SESSIONS_MAX, and at most OF_USER_MAX of a user.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._by_hash: dict[bytes, BrowserSession] = {}

    def invariants(self) -> None:
        """Assert the class's invariant."""
        assert len(self._by_hash) <= SESSIONS_MAX
        users = [each.holder.user for each in self._by_hash.values()]
        assert all(users.count(each) <= OF_USER_MAX for each in set(users))

    def __iter__(self) -> Iterator[BrowserSession]:
        return iter([*self._by_hash.values()])

    def begin(self, holder: LoggedIn, host: str, now_s: float) -> str:
        """Begin a session of who has logged in; its id."""
        self.end_those_over(now_s)
        its = [each for each in self if each.holder.user == holder.user]
        for each in its[: max(0, len(its) + 1 - OF_USER_MAX)]:
            self.end(each)
        if len(self._by_hash) >= SESSIONS_MAX:
            self.end(next(iter(self)))
        session_id = secrets.token_urlsafe(ID_BYTES)
        session = BrowserSession(self._new_number(), holder, host, now_s, now_s)
        self._by_hash[self._hash(session_id)] = session
        return session_id

    def user_of(self, session_id: str) -> str:
        """Whose session it is, which is perhaps over; empty: there is none."""
        session = self._by_hash.get(self._hash(session_id))
        return "" if session is None else str(session.principal)

    def visit(self, session_id: str, host: str, now_s: float, *, is_use: bool) -> Visit | None:
        """The session of a request from an address; None: there is none. `is_use`: a person has
        caused the request, and not a page by itself."""
        key = self._hash(session_id)
        session = self._by_hash.get(key)
        if session is None or network_of(session.host) != network_of(host):
            return None
        if not session.holds(now_s):
            del self._by_hash[key]
            return None
        if is_use:
            session.used_s = now_s
            self._by_hash[key] = self._by_hash.pop(key)
        return Visit(session, self._token(session_id))

    def end(self, session: BrowserSession) -> None:
        """End a session, if it has not ended."""
        for key, each in self._by_hash.items():
            if each is session:
                del self._by_hash[key]
                return

    def end_those_over(self, now_s: float) -> None:
        """Forget those that have ended by themselves."""
        self._by_hash = {key: each for key, each in self._by_hash.items() if each.holds(now_s)}

    def _new_number(self) -> int:
        taken = {each.number for each in self}
        while (number := 1 + secrets.randbelow(NUMBER_MAX)) in taken:
            pass
        return number

    def _hash(self, session_id: str) -> bytes:
        return hmac.digest(self._secret, session_id.encode(), "sha256")

    def _token(self, session_id: str) -> str:
        return hmac.new(self._secret, _OF_TOKEN + session_id.encode(), "sha256").hexdigest()
