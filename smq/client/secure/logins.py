"""The client's side of a SASL exchange: PLAIN (RFC 4616), SCRAM (RFC 5802, RFC 7677), OAUTHBEARER
(RFC 7628), EXTERNAL (RFC 4422), by which the front asks for its users.

A login says the first token, and the next one after each of the server's; None: nothing is left to
say. Passwords are sent as they are: Kafka prepares none (no SASLprep).
"""

import hmac
import re
from base64 import b64decode, b64encode
from typing import Protocol

from smq.security.credentials import ScramMechanism, credential_of, salted
from smq.security.external import NAME as EXTERNAL

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
SCRAM = {each.sasl_name: each for each in ScramMechanism}
MECHANISMS = (PLAIN, *SCRAM)  # With a password.
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 1_000_000  # A server that names more wants our time.

_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<count>\d{1,9})(?:,.*)?"
)


class LoginFailed(Exception):
    """The server's part of an exchange is wrong. A sentence."""


class SaslClient(Protocol):
    """One exchange."""

    def first(self) -> bytes:
        """What begins it."""

    def next(self, token: bytes) -> bytes | None:
        """What answers a token of the server's. Raises LoginFailed."""


class PlainLogin:
    """Sends the password: only where TLS hides it."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        """See SaslClient."""
        return self._token

    def next(self, _token: bytes) -> bytes | None:
        """See SaslClient."""
        return None


class ExternalLogin:
    """Says for whom it asks (smq.security.external)."""

    def __init__(self, named: str) -> None:
        self._token = named.encode()

    def first(self) -> bytes:
        """See SaslClient."""
        return self._token

    def next(self, _token: bytes) -> bytes | None:
        """See SaslClient."""
        return None


class TokenLogin:
    """Sends a token: only where TLS hides it."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._has_failed = False

    def first(self) -> bytes:
        """See SaslClient."""
        return f"n,,\1auth=Bearer {self._token}\1\1".encode()

    def next(self, token: bytes) -> bytes | None:
        """See SaslClient. The server says what is wrong, and wants to be asked to fail."""
        if self._has_failed:
            raise LoginFailed("the broker does not take the token, and does not say so")
        self._has_failed = bool(token)
        return b"\1" if token else None


class ScramLogin:
    """Proves that it knows the password, and has the server prove it too."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, nonce: str) -> None:
        self._mechanism, self._password, self._nonce = mechanism, password, nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        """See SaslClient."""
        return f"n,,{self._bare}".encode()

    def next(self, token: bytes) -> bytes | None:
        """See SaslClient."""
        if self._signature is None:
            return self._prove(token)
        wanted = b"v=" + b64encode(self._signature)
        if not hmac.compare_digest(token.partition(b",")[0], wanted):
            raise LoginFailed("the broker does not prove that it knows the user's password")
        return None

    def _prove(self, token: bytes) -> bytes:
        said = token.decode("ascii", "replace")
        if (found := _FIRST.fullmatch(said)) is None:
            raise LoginFailed("the broker's answer to the login is not SCRAM's")
        nonce, iterations = found["nonce"], int(found["count"])
        try:
            salt = b64decode(found["salt"], validate=True)
        except ValueError as error:
            raise LoginFailed(f"the broker's salt is not Base64: {error}") from error
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise LoginFailed("the broker's answer is to another login")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise LoginFailed(
                f"the broker asks for {iterations} iterations; "
                f"{ITERATIONS_MIN} to {ITERATIONS_MAX} are taken"
            )
        mechanism = self._mechanism
        password = salted(mechanism, self._password, salt, iterations)
        unproved = f"c=biws,r={nonce}"
        message = f"{self._bare},{said},{unproved}".encode()
        client_key = mechanism.keyed(password, b"Client Key")
        credential = credential_of(mechanism, password, salt, iterations)
        signature = mechanism.keyed(credential.stored_key, message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = mechanism.keyed(credential.server_key, message)
        return f"{unproved},p={b64encode(proof).decode()}".encode()


def login_by(mechanism: str, user: str, password: str, nonce: str) -> SaslClient:
    """A login by one of MECHANISMS, or by EXTERNAL. `nonce`: printable, without commas, new each
    time."""
    if mechanism == EXTERNAL:
        return ExternalLogin(user)
    if mechanism == PLAIN:
        return PlainLogin(user, password)
    return ScramLogin(SCRAM[mechanism], user, password, nonce)
