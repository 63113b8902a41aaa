r"""OAUTHBEARER's server (RFC 7628, KIP-255), by the rules of Kafka's.

    client   n,[a=<user>],^Aauth=Bearer <token>^A[host=…^Aport=…^A …]^A
    server   nothing, or an error
    client   ^A, after an error

An error is told first, and the exchange fails with what the client says then: the RFC wants it so,
and clients read what was wrong from the failure. Kafka would take another token after an error;
here the first one counts. Extensions (KIP-342) must have the RFC's form, and are ignored.
"""

import re

from smq.security.sasl import Work, refused
from smq.security.tokens import NAME_BYTES_MAX, TOKEN_BYTES_MAX, InvalidToken, TokenHolder, Tokens

NAME = "OAUTHBEARER"
MESSAGE_BYTES_MAX = TOKEN_BYTES_MAX + 4 * 1024  # Names and extensions take some.
ERROR = '{"status":"invalid_token"}'

# As OAuthBearerClientInitialResponse of Kafka writes them.
_NAME = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS = rb"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_FIRST = re.compile(rb"n,(?:a=(?P<as_user>" + _NAME + rb"))?,\x01(?P<pairs>" + _PAIRS + rb")\x01")
_BEARER = re.compile(rb"\w+ +(?P<token>[-\w.~+/]+=*)", re.ASCII)


class OAuthBearerServer:
    """One exchange."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._has_failed = False
        self._holder: TokenHolder | None = None

    @property
    def user(self) -> str | None:
        """See SaslServer."""
        return self._holder.user if self._holder is not None else None

    def respond(self, token: bytes) -> Work:
        """See SaslServer."""
        if self._has_failed:
            raise refused(ERROR)
        if self._holder is not None:
            raise refused()
        as_user, jwt = _user_and_token(token)

        def check() -> bytes:
            try:
                holder = self._tokens.holder_of(jwt)
            except InvalidToken:
                self._has_failed = True
                return ERROR.encode()
            if as_user not in {"", holder.user}:
                raise refused(
                    f"Authentication failed: Client requested an authorization id ({as_user}) that "
                    f"is different from the token's principal name ({holder.user})"
                )
            self._holder = holder
            return b""

        return check

    @property
    def checked(self) -> TokenHolder | None:
        """See SaslServer."""
        return self._holder

    def lifetime_ms(self, allowed_ms: int) -> int:
        """See SaslServer. It ends with the token, if that is sooner; a token that has ended within
        the skew is good for a moment."""
        assert self._holder is not None, "it has logged in"
        left_ms = max(1, self._tokens.left_ms(self._holder))
        return min(left_ms, allowed_ms) if allowed_ms else left_ms


def _user_and_token(message: bytes) -> tuple[str, str]:
    """The authorization id or "", and the token. Raises BrokerError in Kafka's words."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise refused()
    first = _FIRST.fullmatch(message)
    if first is None:
        raise refused()
    pairs = [each.partition(b"=") for each in first["pairs"].split(b"\1")[:-1]]
    given = [value for name, _, value in pairs if name == b"auth"]
    bearer = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    if bearer is None or not given[0].lower().startswith(b"bearer "):
        raise refused()
    as_user: bytes = first["as_user"] or b""
    if len(as_user) > NAME_BYTES_MAX:  # The refusal repeats it.
        raise refused()
    return as_user.decode(), bearer["token"].decode()
