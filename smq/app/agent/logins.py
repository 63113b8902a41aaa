"""Logins by the metadata of a call: `authorization: Basic …` or `Bearer …`, as by HTTP.

Each call says who asks; what was right is remembered by a keyed hash, and what was wrong is
answered late. Calls that show the same share one check. Checks that wait or run, and wrong ones
until they are answered, are bounded, in all and from one address; on this host, where a proxy
speaks for everybody, for one name.
"""

import asyncio
from base64 import b64decode
from binascii import Error as NotBase64
from collections import Counter
from collections.abc import Sequence
from functools import partial

import grpc

from smq.app.agent.refusals import CallRefused
from smq.front.lane import whose_login
from smq.front.logins import Asking, HttpLogins, LoggedIn, LoginRefused

AUTHORIZATION = "authorization"
WAITING_MAX, WAITING_OF_ONE_MAX = 512, 64
NO_LOGIN = (
    "say who you are, in the call's metadata: `authorization: Basic <base64 of name:password>`, or "
    "`Bearer <token>`"
)
WRONG = "the name or the password is wrong, or the token"
SEEN = (
    "a password would be seen on its way: use TLS (SASL_SSL), send a token, or accept that with "
    "allow.plaintext=true"
)
BUSY = "too many logins are being checked; try again"

Metadata = Sequence[tuple[str, str | bytes]]


class MetadataLogins:
    """The logins of one port. `takes_passwords`: nobody sees them on their way, or that is
    accepted."""

    def __init__(self, logins: HttpLogins, *, takes_passwords: bool) -> None:
        self._logins, self._takes_passwords = logins, takes_passwords
        self._waiting = Counter[str]()  # Checks, by whose they are.
        self._checks: dict[tuple[str, bytes], asyncio.Future[LoggedIn]] = {}

    def invariants(self) -> None:
        """Assert that who waits is counted, and bounded."""
        assert len(self._checks) == self._waiting.total() <= WAITING_MAX
        assert all(0 < count <= WAITING_OF_ONE_MAX for count in self._waiting.values())

    async def find(self, metadata: Metadata, host: str) -> LoggedIn:
        """Who calls. Raises CallRefused."""
        shown = _shown(metadata)
        if shown.partition(b" ")[0].lower() == b"basic" and not self._takes_passwords:
            raise _unauthenticated(SEEN)
        asking = Asking("GET", {AUTHORIZATION.encode(): shown}, host, is_private=True)
        try:
            known = self._logins.known(asking)
            if known is not None:
                return known
            return await self._checked(asking, whose_login(host, _name_in(shown)))
        except LoginRefused:
            raise _unauthenticated(WRONG) from None

    async def _checked(self, asking: Asking, whose: str) -> LoggedIn:
        """The result of a check; who shows the same from the same address meanwhile shares it.

        Raises LoginRefused, CallRefused.
        """
        key = asking.host, asking.headers[AUTHORIZATION.encode()]
        if key not in self._checks:
            if len(self._checks) >= WAITING_MAX or self._waiting[whose] >= WAITING_OF_ONE_MAX:
                raise CallRefused(grpc.StatusCode.UNAVAILABLE, BUSY)
            self._waiting[whose] += 1
            check = asyncio.ensure_future(self._logins.find(asking))
            check.add_done_callback(partial(self._end, key, whose))
            self._checks[key] = check
        return await asyncio.shield(self._checks[key])

    def _end(self, key: tuple[str, bytes], whose: str, check: "asyncio.Future[LoggedIn]") -> None:
        del self._checks[key]
        self._waiting[whose] -= 1
        if not self._waiting[whose]:
            del self._waiting[whose]
        if not check.cancelled():
            check.exception()  # Nobody may be left who reads it.


def _shown(metadata: Metadata) -> bytes:
    """What a call shows. Raises CallRefused."""
    found = [value for key, value in metadata if key == AUTHORIZATION]
    if len(found) != 1:
        raise _unauthenticated(NO_LOGIN)
    [shown] = found
    return shown if isinstance(shown, bytes) else shown.encode("utf-8", "replace")


def _name_in(shown: bytes) -> str:
    """The name that is claimed, by which those of one address have turns."""
    try:
        claimed = b64decode(shown.partition(b" ")[2].strip(), validate=True)
    except NotBase64:
        return ""
    return claimed.partition(b":")[0].decode("latin-1")


def _unauthenticated(sentence: str) -> CallRefused:
    return CallRefused(grpc.StatusCode.UNAUTHENTICATED, sentence)
