"""PLAIN's server (RFC 4616), by the rules of Kafka's: one token, [authorization id] NUL user NUL
password.

The password is checked with the user's SCRAM credential, SHA-512's if there is one: nothing else is
kept of a password. That takes as long as a client of SCRAM needs for its proof, milliseconds. A
login lasts until its password would be checked with another credential.
"""

import hmac
from typing import NamedTuple

from smq.security.credentials import (
    Checked,
    Credentials,
    ScramMechanism,
    credential_of,
    look_up,
    salted,
)
from smq.security.decoys import Decoys, credential_or_decoy
from smq.security.sasl import RESERVED_PREFIX, Work, refused

NAME = "PLAIN"
TOKEN_BYTES_MAX = 16 * 1024
_STRONGEST_FIRST = (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256)


class CheckedPassword(NamedTuple):
    """What a password is checked with: `last`, since there is none of the stronger mechanisms."""

    stronger: tuple[Checked, ...]
    last: Checked

    def is_current(self) -> bool:
        """Whether the user's password would be checked with the same now."""
        return all(each.is_current() for each in (*self.stronger, self.last))


class PlainServer:
    """One exchange."""

    def __init__(self, credentials: Credentials, decoys: Decoys) -> None:
        self._credentials, self._decoys = credentials, decoys
        self.checked: CheckedPassword | None = None
        self.user: str | None = None

    def respond(self, token: bytes) -> Work:
        """See SaslServer."""
        if self.user is not None:
            raise refused()
        user, password = _user_and_password(token)
        mechanism = self._mechanism_of(user)
        tried = _STRONGEST_FIRST[: _STRONGEST_FIRST.index(mechanism) + 1]
        *stronger, last = (look_up(self._credentials, user, each) for each in tried)
        self.checked = CheckedPassword(tuple(stronger), last)
        credential = credential_or_decoy(last, self._decoys)

        def check() -> bytes:
            password_key = salted(mechanism, password, credential.salt, credential.iterations)
            given = credential_of(mechanism, password_key, credential.salt, credential.iterations)
            is_right = hmac.compare_digest(given.stored_key, credential.stored_key)
            if not is_right or user.startswith(RESERVED_PREFIX):
                raise refused("Authentication failed: Invalid username or password")
            self.user = user
            return b""

        return check

    def lifetime_ms(self, allowed_ms: int) -> int:
        """See SaslServer."""
        return allowed_ms

    def _mechanism_of(self, user: str) -> ScramMechanism:
        """The strongest that the user has; of one who does not exist, that of its decoy."""
        decoys = dict(self._decoys.profile(user, self._credentials.profiles()))
        has = [each for each in _STRONGEST_FIRST if self._credentials.find(user, each) is not None]
        return next(each for each in _STRONGEST_FIRST if each in (has or decoys))


def _user_and_password(token: bytes) -> tuple[str, str]:
    """Raises BrokerError in Kafka's words."""
    if len(token) > TOKEN_BYTES_MAX:
        raise refused()
    parts = token.split(b"\0", 3)
    if len(parts) != 3:
        raise refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    as_user, user, password = (part.decode(errors="replace") for part in parts)
    if not user:
        raise refused("Authentication failed: username not specified")
    if not password:
        raise refused("Authentication failed: password not specified")
    if as_user and as_user != user:
        raise refused(
            "Authentication failed: Client requested an authorization id that is different from "
            "username"
        )
    return user, password
