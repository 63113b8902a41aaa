"""EXTERNAL's server (RFC 4422, appendix A): who connects is known, and says for whom it asks.

Only the front has it, at a listener that has no name: users have logged in by HTTP, and the front
says who they are and where they ask from. One token, "<address> <user>".
"""

from typing import NamedTuple

from smq.security.addresses import is_address
from smq.security.sasl import RESERVED_PREFIX, refused

NAME = "EXTERNAL"
TOKEN_BYTES_MAX = 16 * 1024


class Named(NamedTuple):
    """For whom a connection asks, and from which address."""

    user: str
    host: str

    @property
    def token(self) -> str:
        """As EXTERNAL says it."""
        return f"{self.host} {self.user}"

    def is_current(self) -> bool:
        """Whether it still holds: its connection lasts as long as a request by HTTP."""
        return True


class ExternalServer:
    """One exchange."""

    def __init__(self) -> None:
        self.checked: Named | None = None

    @property
    def user(self) -> str | None:
        """See SaslServer."""
        return None if self.checked is None else self.checked.user

    def respond(self, token: bytes) -> bytes:
        """See SaslServer."""
        if self.checked is not None:
            raise refused()
        self.checked = _named(token)
        return b""

    def lifetime_ms(self, allowed_ms: int) -> int:
        """See SaslServer."""
        return allowed_ms


def _named(token: bytes) -> Named:
    """Raises BrokerError."""
    if len(token) > TOKEN_BYTES_MAX:
        raise refused()
    try:
        host, _, user = token.decode().partition(" ")
    except UnicodeDecodeError:
        raise refused() from None
    if not is_address(host) or not user or user.startswith(RESERVED_PREFIX):
        raise refused()
    return Named(user, host)
