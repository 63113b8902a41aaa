"""One SASL exchange, as the server sees it: tokens in, tokens out.

A mechanism answers each token with the next one, or with work that takes milliseconds and whose
result is the next one. When the exchange is complete it knows the user. A failed exchange raises
BrokerError with Kafka's code and words, which do not tell whether the user exists.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from smq.model.errors import BrokerError, ErrorCode

Work: TypeAlias = Callable[[], bytes]
"""Makes the next token, away from the loop. Raises BrokerError."""

RESERVED_PREFIX = "unix/"  # Of the names of this host's users, who are known by their sockets.


class Lasting(Protocol):
    """What a login is checked with: it may change while the login goes on, and afterwards."""

    def is_current(self) -> bool:
        """Whether it has not changed."""


class SaslServer(Protocol):
    """The server's side of one exchange."""

    @property
    def user(self) -> str | None:
        """Who has logged in; None: the exchange is not complete."""

    @property
    def checked(self) -> Lasting | None:
        """What the exchange is checked with; None: it has not said whose it is."""

    def respond(self, token: bytes) -> bytes | Work:
        """Take the client's token. Raises BrokerError if it does not log in."""

    def lifetime_ms(self, allowed_ms: int) -> int:
        """How long who has logged in now stays so, of the time that the settings allow; 0: for
        ever."""


def refused(message: str | None = None) -> BrokerError:
    """The failure of an exchange, in Kafka's words; None: in those that tell nothing."""
    return BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


def invalid_credentials(mechanism: str, *, renews: bool) -> str:
    """The words for a failure without any: Kafka's, whatever is wrong with an exchange."""
    when = "re-authentication" if renews else "authentication"
    return (
        f"Authentication failed during {when} due to invalid credentials with SASL mechanism "
        f"{mechanism}"
    )
