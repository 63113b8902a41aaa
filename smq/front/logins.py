"""Who asks by HTTP: users with the names and passwords of Kafka's listeners (Basic, RFC 7617), or
with the tokens of an issuer (Bearer, RFC 6750).

A password is checked as that of SASL/PLAIN is, in a thread and one at a time: it takes
milliseconds. What was right is remembered by a keyed hash, until users or rules change. What was
wrong is answered late, so that passwords are not tried quickly.

A browser sends a stored password with whatever a page asks of this host. The gate refuses what
other sites' pages ask; and what changes something, or runs a query, needs a header that only a
program or our own page sets.
"""

import asyncio
import hmac
import secrets
from base64 import b64decode
from binascii import Error as NotBase64
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.responses import JSONResponse

from smq.front.origin import READS
from smq.model.errors import BrokerError
from smq.security.listeners import HTTP
from smq.security.principals import USER, Peer, Principal
from smq.security.rights import Rights
from smq.security.sasl import SaslServer
from smq.security.tokens import InvalidToken, Tokens

KNOWN_MAX = 1000  # Passwords that were right.
TOKEN_HEADER = b"x-smq-token"
CHALLENGE = 'Basic realm="smq", charset="UTF-8"'
NO_LOGIN = "say who you are: a user's name and password by HTTP Basic (`curl -u name`), or a token"
WRONG = "the name or the password is wrong, or the token"
NO_HEADER = (
    "with a password this needs the header `x-smq-token` too, of any value: other sites' pages "
    "cannot send it"
)
ANY_HOST = (
    "a password would be seen on its way: use TLS (http.security.protocol=SSL), ask from the "
    "broker's host, or accept that with allow.plaintext=true"
)


class LoginRefused(Exception):
    """Nobody has logged in; `answer` says why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        headers = {"www-authenticate": CHALLENGE} if status == 401 else {}
        self.answer = JSONResponse({"error": sentence}, status, headers)


class Asking(NamedTuple):
    """A request, as far as a login looks at it.

    is_private   nobody else can see it on its way
    """

    method: str
    headers: Mapping[bytes, bytes]
    host: str
    is_private: bool


class _Known(NamedTuple):
    """Who has given a password that was right, and as of which version of users."""

    user: str
    version: int


class Passwords(NamedTuple):
    """The users' passwords: `begin` begins the check of one, `version` is that of all users."""

    begin: Callable[[], SaslServer]
    version: Callable[[], int]


class HttpLogins:
    """The logins of one front.

    rights_of  what a peer may do
    delay_s    how long a wrong password waits for its answer
    tokens     those that are taken; None: none
    is_open    passwords are taken where others may see them

    failed_count  wrong passwords so far
    """

    def __init__(
        self,
        passwords: Passwords,
        rights_of: Callable[[Peer], Rights],
        delay_s: float,
        *,
        tokens: Tokens | None = None,
        is_open: bool = False,
    ) -> None:
        self._passwords, self._rights_of, self._delay_s = passwords, rights_of, delay_s
        self._tokens, self._is_open = tokens, is_open
        self._secret = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._lane = CapacityLimiter(1)
        self.failed_count = 0

    async def rights(self, asking: Asking) -> Rights:
        """What who asks may do. Raises LoginRefused."""
        kind, _, shown = asking.headers.get(b"authorization", b"").partition(b" ")
        is_token = kind.lower() == b"bearer" and self._tokens is not None
        plain = b"" if is_token else _plain_token(kind, shown)
        if not (asking.is_private or self._is_open):
            raise LoginRefused(403, ANY_HOST)
        if is_token:
            user = await self._user_of_token(shown.strip())
        elif asking.method not in READS and not asking.headers.get(TOKEN_HEADER):
            raise LoginRefused(403, NO_HEADER)
        else:
            user = await self._user(plain)
        return self._rights_of(Peer(Principal(USER, user), asking.host, HTTP))

    async def _user_of_token(self, token: bytes) -> str:
        assert self._tokens is not None
        try:
            holder = await run_sync(
                self._tokens.holder_of, token.decode("latin-1"), limiter=self._lane
            )
        except InvalidToken:
            await self._fail()
        return holder.user

    async def _user(self, token: bytes) -> str:
        key = hmac.digest(self._secret, token, "sha256")
        known = self._known.pop(key, None)
        if known is None or known.version != self._passwords.version():
            known = await self._checked(token)
        self._known[key] = known
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return known.user

    async def _checked(self, token: bytes) -> _Known:
        """Whose password it is. Raises LoginRefused."""
        while True:
            version, server = self._passwords.version(), self._passwords.begin()
            try:
                work = server.respond(token)
                assert callable(work), "a password takes work"
                await run_sync(work, limiter=self._lane)
            except BrokerError:
                if server.checked is not None and not server.checked.is_current():
                    continue  # It was changed meanwhile: look at the new one.
                await self._fail()
            assert server.user is not None
            assert server.checked is not None
            if server.checked.is_current():
                return _Known(server.user, version)

    async def _fail(self) -> NoReturn:
        self.failed_count += 1
        await asyncio.sleep(self._delay_s)
        raise LoginRefused(401, WRONG) from None


def _plain_token(kind: bytes, shown: bytes) -> bytes:
    """The token of SASL/PLAIN (RFC 4616) for a name and a password. Raises LoginRefused."""
    if kind.lower() != b"basic":
        raise LoginRefused(401, NO_LOGIN)
    try:
        user, colon, password = b64decode(shown.strip(), validate=True).partition(b":")
    except NotBase64:
        raise LoginRefused(401, NO_LOGIN) from None
    if not (user and colon and password) or b"\0" in user + password:
        raise LoginRefused(401, NO_LOGIN)
    return b"\0".join((b"", user, password))
