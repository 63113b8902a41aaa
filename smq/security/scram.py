"""SCRAM's server (RFC 5802, RFC 7677), by the rules of Kafka's.

    client   n,,n=alice,r=<client's nonce>
    server   r=<both nonces>,s=<salt>,i=<iterations>
    client   c=biws,r=<both nonces>,p=<proof>
    server   v=<signature>

The proof is ClientKey XOR HMAC(StoredKey, AuthMessage): who has it can be checked with StoredKey,
which is the hash of ClientKey. AuthMessage holds both nonces: an exchange cannot be replayed.

Kafka's rules: no channel binding (the header in `c=` is not looked at), no SASLprep, names and
nonces in ASCII, an authorization id only if it is the user. Extensions are ignored; with
`tokenauth` the login fails: there are no delegation tokens.
"""

import hmac
import re
from base64 import b64decode, b64encode

from smq.security.credentials import (
    Checked,
    Credentials,
    ScramCredential,
    ScramMechanism,
    look_up,
)
from smq.security.decoys import Decoys, credential_or_decoy
from smq.security.sasl import RESERVED_PREFIX, refused

TOKEN_BYTES_MAX = 16 * 1024

# As ScramMessages of Kafka writes them.
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_FIRST = re.compile(
    rf"n,(?:a=(?P<as_user>{_NAME}))?,"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<user>{_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_FINAL = re.compile(
    rf"(?P<unproved>c={_BASE64},r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_TOKEN_AUTHENTICATED = re.compile(r",tokenauth=true(,|$)", re.IGNORECASE)


class ScramServer:
    """One exchange. `nonce` is the server's own, and new for each."""

    def __init__(
        self, mechanism: ScramMechanism, credentials: Credentials, decoys: Decoys, nonce: str
    ) -> None:
        assert re.fullmatch(_PRINTABLE, nonce)
        self._mechanism, self._credentials, self._decoys = mechanism, credentials, decoys
        self._nonce = nonce
        self._credential: ScramCredential | None = None
        self._said = ""  # The first two messages, without the header of the first.
        self.checked: Checked | None = None
        self.user: str | None = None

    def respond(self, token: bytes) -> bytes:
        """See SaslServer."""
        if self.user is not None:
            raise refused()
        text = self._text(token)
        if self.checked is None or self._credential is None:
            return self._begin(text)
        return self._end(text, self.checked.user, self._credential)

    def lifetime_ms(self, allowed_ms: int) -> int:
        """See SaslServer."""
        return allowed_ms

    def _text(self, token: bytes) -> str:
        if len(token) > TOKEN_BYTES_MAX:
            raise refused()
        try:
            return token.decode("ascii")
        except UnicodeDecodeError:
            raise refused() from None

    def _begin(self, text: str) -> bytes:
        first = _FIRST.fullmatch(text)
        if first is None or _TOKEN_AUTHENTICATED.search(first["extensions"]):
            raise refused()
        name = _unescaped(first["user"])
        if first["as_user"] and _unescaped(first["as_user"]) != name:
            raise refused(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.checked = look_up(self._credentials, name, self._mechanism)
        found = self._credential = credential_or_decoy(self.checked, self._decoys)
        self._nonce = first["nonce"] + self._nonce
        answer = f"r={self._nonce},s={b64encode(found.salt).decode()},i={found.iterations}"
        self._said = f"{first['bare']},{answer}"
        return answer.encode()

    def _end(self, text: str, name: str, credential: ScramCredential) -> bytes:
        final = _FINAL.fullmatch(text)
        if final is None or not hmac.compare_digest(final["nonce"], self._nonce):
            raise refused()
        auth_message = f"{self._said},{final['unproved']}".encode()
        proof = b64decode(final["proof"])
        signature = self._mechanism.keyed(credential.stored_key, auth_message)
        if len(proof) != len(signature):
            raise refused()
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_proved = hmac.compare_digest(self._mechanism.hashed(client_key), credential.stored_key)
        if not is_proved or name.startswith(RESERVED_PREFIX):
            raise refused()
        self.user = name
        return b"v=" + b64encode(self._mechanism.keyed(credential.server_key, auth_message))


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
