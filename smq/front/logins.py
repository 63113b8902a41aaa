"""Who asks by HTTP: users with the names and passwords of Kafka's listeners (Basic, RFC 7617), or
with the tokens of an issuer (Bearer, RFC 6750).

A password is checked as that of SASL/PLAIN is, in a thread and one at a time: it takes
milliseconds. What was right is remembered by a keyed hash: a password until users or rules change,
a token until it ends or the issuer's keys change. So who has logged in waits for nobody's check.
What was wrong is answered late, so that passwords are not tried quickly.

A browser sends a stored password with whatever a page asks of this host. The gate refuses what
other sites' pages ask; and what changes something, or runs a query, needs a header that only a
program or our own page sets.
"""

import asyncio
import hmac
import re
import secrets
from base64 import b64decode
from binascii import Error as NotBase64
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Generic, NamedTuple, NoReturn, TypeVar

from starlette.responses import JSONResponse

from smq.front.lane import AskerGone, LineFull, LoginLane, whose_login
from smq.front.origin import READS, TOKEN_HEADER
from smq.front.places import WaitingPlaces
from smq.front.slots import LATE_MAX, RETRY_AFTER_S
from smq.front.turns import PeerStanding
from smq.model.errors import BrokerError
from smq.security.addresses import network_of
from smq.security.audit import OFF, Audit
from smq.security.listeners import HTTP
from smq.security.principals import USER, Peer, Principal
from smq.security.rights import Rights
from smq.security.sasl import Lasting, SaslServer
from smq.security.tokens import InvalidToken, Keys, TokenHolder, Tokens

KNOWN_MAX = 1000  # Passwords that were right, and as many tokens.
NOTICES_MS = 60_000
HEAD_BYTES = 8192  # Of a request: what is known to be right stands early, or has its turn later.
_AUTHORIZATION = re.compile(rb"\r\nauthorization:([^\r\n]*)", re.IGNORECASE)
CHALLENGE = 'Basic realm="smq", charset="UTF-8"'
NO_LOGIN = "say who you are: a user's name and password by HTTP Basic (`curl -u name`), or a token"
WRONG = "the name or the password is wrong, or the token"
BUSY = "too many logins wait already: try again"
FORM_BYTES_MAX = 80 * 1024  # Of a login: a token has 64 KiB at most.
NO_HEADER = (
    f"with a password this needs the header `{TOKEN_HEADER}` too, of any value: other sites' pages "
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
        headers = {401: {"www-authenticate": CHALLENGE}, 503: {"retry-after": str(RETRY_AFTER_S)}}
        self.answer = JSONResponse({"error": sentence}, status, headers.get(status))


@dataclass(frozen=True, slots=True)
class Asking:
    """A request, as far as a login looks at it.

    is_private   nobody else can see it on its way
    standing     of its connection
    again        a login on it was not right
    """

    method: str
    headers: Mapping[bytes, bytes]
    host: str
    is_private: bool
    standing: PeerStanding = field(default_factory=PeerStanding)
    again: bool = False


class LoggedIn(NamedTuple):
    """Who has logged in, what that was checked with, and for how long it holds at most."""

    user: str
    checked: Lasting
    seconds: float = inf


class _Shown(NamedTuple):
    """What somebody shows to log in: a token, or the name and password as SASL/PLAIN has them."""

    is_token: bool
    secret: bytes


class _Known(NamedTuple):
    """Who has given a password that was right, as of which version of users, and what it was
    checked with."""

    user: str
    version: int
    checked: Lasting


class _KnownToken(NamedTuple):
    """Who has shown a token that was right, and the keys by which it was."""

    holder: TokenHolder
    keys: Keys


Entry = TypeVar("Entry")
T = TypeVar("T")


class _Memory(Generic[Entry]):
    """What was right, by keyed hashes: KNOWN_MAX of them, those that were used last."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, Entry] = OrderedDict()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._known)

    def __getitem__(self, secret: bytes) -> Entry | None:
        """What is known of a secret; None: nothing."""
        known = self._known.pop(key := self._key(secret), None)
        if known is not None:
            self._known[key] = known
        return known

    def __setitem__(self, secret: bytes, known: Entry) -> None:
        """It was right."""
        self._known[self._key(secret)] = known
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def _key(self, secret: bytes) -> bytes:
        return hmac.digest(self._secret, secret, "sha256")


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
    audit      who has logged in, and who has failed to
    listener   where they are

    failed_count  wrong passwords and tokens so far
    notices       of them, for the operator
    """

    def __init__(  # noqa: PLR0913  (what it needs of the broker)
        self,
        passwords: Passwords,
        rights_of: Callable[[Peer], Rights],
        delay_s: float,
        *,
        tokens: Tokens | None = None,
        is_open: bool = False,
        audit: Audit = OFF,
        listener: str = HTTP,
    ) -> None:
        self._passwords, self.rights_of, self._delay_s = passwords, rights_of, delay_s
        self._tokens, self._is_open = tokens, is_open
        self._known, self._known_tokens = _Memory[_Known](), _Memory[_KnownToken]()
        self._lane, self._late, self._audit = LoginLane(), WaitingPlaces(LATE_MAX), audit
        self._listener = listener
        self.failed_count = self._told_count = 0
        self._told_ms = -NOTICES_MS
        self.notices: list[str] = []

    def remembered(self, asking: Asking) -> Rights | None:
        """What who asks may do; None: what he shows has to be checked. Raises LoginRefused."""
        known = self.known(asking)
        return None if known is None else self._rights_of_user(asking, known.user)

    def known(self, asking: Asking) -> LoggedIn | None:
        """Who asks; None: what he shows has to be checked. Raises LoginRefused."""
        return self._known_by(self._shown_by(asking))

    async def rights(self, asking: Asking) -> Rights:
        """What who asks may do. Raises LoginRefused."""
        return self._rights_of_user(asking, (await self.find(asking)).user)

    async def find(self, asking: Asking) -> LoggedIn:
        """Who asks, checked if need be. Raises LoginRefused."""
        shown = self._shown_by(asking)
        return self._known_by(shown) or await self._checked(shown, asking)

    def notice_failures(self, now_ms: int) -> None:
        """Note failed logins for the operator, once a minute. `now_ms` is monotonic."""
        count = self.failed_count - self._told_count
        if count and now_ms - self._told_ms >= NOTICES_MS:
            where = "front" if self._listener == HTTP else self._listener
            self.notices.append(f"{where}: failed logins since the last such line: {count}")
            self._told_count, self._told_ms = self.failed_count, now_ms

    @property
    def takes_tokens(self) -> bool:
        return self._tokens is not None

    async def by_password(self, user: str, password: str, asking: Asking) -> LoggedIn:
        """Who logs in with a name and a password on a page. Raises LoginRefused."""
        self._check_private(asking)
        shown = _Shown(is_token=False, secret=f"\0{user}\0{password}".encode())
        if not (user and password) or "\0" in user + password:
            await self._fail(asking, shown)
        return await self._checked(shown, asking)

    async def by_token(self, token: str, asking: Asking) -> LoggedIn:
        """Who logs in with a token on a page. Raises LoginRefused."""
        self._check_private(asking)
        shown = _Shown(is_token=True, secret=token.strip().encode())
        if self._tokens is None:
            await self._fail(asking, shown)
        return await self._checked(shown, asking)

    async def _checked(self, shown: _Shown, asking: Asking) -> LoggedIn:
        """Who has shown this. Raises LoginRefused."""
        check = self._by_shown_token if shown.is_token else self._by_shown_password
        try:
            found = await check(shown, asking)
        except AskerGone:
            raise LoginRefused(401, WRONG) from None  # Nobody reads it.
        except LineFull:
            raise LoginRefused(503, BUSY) from None
        self._audit.logged_in(self._peer(asking, found.user), _how(shown))
        return found

    def user_of(self, data: bytes) -> str:
        """Whose login, known to be right, the head of a request shows while it comes in; else
        empty."""
        found = _AUTHORIZATION.search(data, 0, HEAD_BYTES)
        if found is None:
            return ""
        try:
            known = self._known_by(self._shown(found[1]))
        except LoginRefused:
            return ""
        return "" if known is None else str(Principal(USER, known.user))

    def _rights_of_user(self, asking: Asking, user: str) -> Rights:
        return self.rights_of(self._peer(asking, user))

    def _peer(self, asking: Asking, user: str) -> Peer:
        return Peer(Principal(USER, user), asking.host, self._listener)

    def _shown_by(self, asking: Asking) -> _Shown:
        shown = self._shown(asking.headers.get(b"authorization", b""))
        self._check_private(asking)
        changes = asking.method not in READS
        if changes and not (shown.is_token or asking.headers.get(TOKEN_HEADER.encode())):
            raise LoginRefused(403, NO_HEADER)
        return shown

    def _check_private(self, asking: Asking) -> None:
        if not (asking.is_private or self._is_open):
            raise LoginRefused(403, ANY_HOST)

    def _shown(self, authorization: bytes) -> _Shown:
        kind, _, secret = authorization.strip().partition(b" ")
        if kind.lower() == b"bearer" and self._tokens is not None:
            return _Shown(is_token=True, secret=secret.strip())
        return _Shown(is_token=False, secret=_plain_token(kind, secret))

    def _known_by(self, shown: _Shown) -> LoggedIn | None:
        """Who has shown this before; None: nobody, or it may be right no more."""
        if shown.is_token:
            token, tokens = self._known_tokens[shown.secret], self._tokens
            assert tokens is not None
            if token is None or token.keys is not tokens.keys:
                return None
            left_ms = tokens.left_ms(token.holder)
            return (
                LoggedIn(token.holder.user, token.holder, left_ms / 1000) if left_ms > 0 else None
            )
        known = self._known[shown.secret]
        is_current = known is not None and known.version == self._passwords.version()
        return LoggedIn(known.user, known.checked) if known is not None and is_current else None

    async def _by_shown_token(self, shown: _Shown, asking: Asking) -> LoggedIn:
        token, tokens = shown.secret, self._tokens
        assert tokens is not None
        keys, text = tokens.keys, token.decode("latin-1")
        try:
            holder = await self._in_lane(lambda: tokens.holder_of(text), "", asking)
        except InvalidToken:
            await self._fail(asking, shown)
        if not holder.is_current():  # Its key was withdrawn meanwhile.
            await self._fail(asking, shown)
        self._known_tokens[token] = _KnownToken(holder, keys)
        return LoggedIn(holder.user, holder, tokens.left_ms(holder) / 1000)

    async def _by_shown_password(self, shown: _Shown, asking: Asking) -> LoggedIn:
        """Whose password it is. Raises LoginRefused."""
        plain = shown.secret
        name = plain.split(b"\0")[1].decode("latin-1")
        while True:
            version, server = self._passwords.version(), self._passwords.begin()
            try:
                work = server.respond(plain)
                assert callable(work), "a password takes work"
                await self._in_lane(work, name, asking)
            except BrokerError:
                if server.checked is not None and not server.checked.is_current():
                    continue  # It was changed meanwhile: look at the new one.
                await self._fail(asking, shown)
            assert server.user is not None
            assert server.checked is not None
            if server.checked.is_current():
                self._known[plain] = _Known(server.user, version, server.checked)
                return LoggedIn(server.user, server.checked)

    async def _in_lane(self, work: Callable[[], T], name: str, asking: Asking) -> T:
        whose = whose_login(asking.host, name)
        return await self._lane.run(work, whose, asking.standing, again=asking.again)

    async def _fail(self, asking: Asking, shown: _Shown) -> NoReturn:
        self.failed_count += 1
        self._audit.login_failed(asking.host, self._listener, _how(shown))
        with suppress(TimeoutError):  # So many wait that this one is answered now.
            async with self._late.place(network_of(asking.host)):
                await asyncio.sleep(self._delay_s)
        raise LoginRefused(401, WRONG) from None


def _how(shown: _Shown) -> str:
    return "token" if shown.is_token else "password"


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
