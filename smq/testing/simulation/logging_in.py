"""A simulated client's login: before its first request, and again before its session ends.

What it is told is compared with what was promised: the right password logs in, a wrong one does
not.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from smq.client.secure.logins import LoginFailed, SaslClient, login_by
from smq.model.errors import ErrorCode
from smq.testing.simulation.clock import MS
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.ledger import Broken
from smq.testing.simulation.people import Identity, password_of
from smq.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

HANDSHAKE, AUTHENTICATE = 1, 2  # Versions.
RENEWED_AT = 0.85  # Of a session.

Message: TypeAlias = Any
"""One of the generated requests or responses."""


class LoggingIn(Protocol):
    """The connection that logs in."""

    def send(
        self,
        name: str,
        version: int,
        message: Message,
        answered: Callable[[Message], None],
    ) -> None:
        """Send a request before all others."""

    def is_in(self) -> None:
        """It has logged in."""

    def broken(self) -> None:
        """It is of no use."""


class SimLogin:
    """The logins of one connection.

    version   of the password that it uses
    renews    whether it logs in again before its session ends
    ends_ns   when the session is surely over; None: never
    """

    def __init__(  # noqa: PLR0913  (who logs in, and how)
        self,
        world: Environment,
        connection: LoggingIn,
        identity: Identity,
        version: int,
        make_nonce: Callable[[], str],
        *,
        renews: bool,
    ) -> None:
        self._world, self._connection, self._identity = world, connection, identity
        self.version, self.renews = version, renews
        self._make_nonce = make_nonce
        self._begun, self._was_right, self._was_wrong = 0, False, False
        self.is_busy = False
        self.ends_ns: int | None = None
        self._renew_ns: int | None = None

    @property
    def is_due(self) -> bool:
        """Whether it is time to log in again."""
        now_ns = self._world.clock.now_ns
        return self.renews and self._renew_ns is not None and now_ns >= self._renew_ns

    @property
    def is_over(self) -> bool:
        """Whether the session is over: nothing that is sent now may be served."""
        return self.ends_ns is not None and self._world.clock.now_ns > self.ends_ns

    @property
    def is_dead(self) -> bool:
        """Whether the password is surely no longer the user's: nothing that is sent now may be
        served."""
        world = self._world
        return world.permits.is_wrong(self._identity.name, self.version, world.quiet_ns)

    def begin(self) -> None:
        """Log in."""
        world, identity = self._world, self._identity
        name, quiet_ns = identity.name, world.quiet_ns
        self._begun = world.permits.password_begun(name)
        self._was_right = world.permits.is_right(name, self.version, quiet_ns)
        self._was_wrong = world.permits.is_wrong(name, self.version, quiet_ns)
        self.is_busy = True
        request = SaslHandshakeRequest(mechanism=identity.mechanism)
        self._connection.send("SaslHandshake", HANDSHAKE, request, self._shaken)

    def _shaken(self, answer: SaslHandshakeResponse | None) -> None:
        if answer is None:
            return
        if answer.error_code != ErrorCode.NONE:
            raise Broken(f"{self._identity.name} cannot log in: {answer.error_code}")
        identity = self._identity
        password = password_of(identity.name, self.version)
        exchange = login_by(identity.mechanism, identity.name, password, self._make_nonce())
        self._say(exchange, exchange.first())

    def _say(self, exchange: SaslClient, token: bytes) -> None:
        request = SaslAuthenticateRequest(auth_bytes=token)
        self._connection.send(
            "SaslAuthenticate", AUTHENTICATE, request, lambda answer: self._told(exchange, answer)
        )

    def _told(self, exchange: SaslClient, answer: SaslAuthenticateResponse | None) -> None:
        if answer is None:
            return
        if answer.error_code != ErrorCode.NONE:
            self._refused(answer.error_message or "")
            return
        try:
            token = exchange.next(answer.auth_bytes)
        except LoginFailed as reason:
            # Who proves that it has the password is taken at its word, and the broker knows it too.
            raise Broken(f"{self._identity.name} is let in, but not by its password") from reason
        if token is not None:
            self._say(exchange, token)
        else:
            self._is_in(answer.session_lifetime_ms)

    def _refused(self, why: str) -> None:
        self._world.detail(lambda: f"{self._identity.name} is not let in: {why}")
        if self._was_right and not self._has_changed():
            raise Broken(f"{self._identity.name} is refused with the right password: {why}")
        self._connection.broken()

    def _is_in(self, lifetime_ms: int) -> None:
        if self._was_wrong and not self._has_changed():
            raise Broken(f"{self._identity.name} is let in with a password of before")
        now_ns = self._world.clock.now_ns
        self.is_busy = False
        self.ends_ns = now_ns + lifetime_ms * MS if lifetime_ms else None
        self._renew_ns = now_ns + int(RENEWED_AT * lifetime_ms * MS) if lifetime_ms else None
        self._connection.is_in()

    def _has_changed(self) -> bool:
        return self._world.permits.password_begun(self._identity.name) != self._begun
