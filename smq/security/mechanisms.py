"""The SASL mechanisms of the broker."""

from collections.abc import Callable
from typing import TypeAlias

from smq.security.credentials import Credentials, ScramMechanism
from smq.security.decoys import Decoys
from smq.security.oauthbearer import NAME as OAUTHBEARER, OAuthBearerServer
from smq.security.plain import NAME as PLAIN, PlainServer
from smq.security.sasl import SaslServer
from smq.security.scram import ScramServer
from smq.security.tokens import Tokens

MakeNonce: TypeAlias = Callable[[], str]
"""Makes a nonce that nobody can guess: printable, without commas."""

_SCRAM = {each.sasl_name: each for each in ScramMechanism}
MECHANISMS = (PLAIN, *_SCRAM, OAUTHBEARER)


def enabled_mechanisms(text: str) -> tuple[str, ...]:
    """The value of `sasl.enabled.mechanisms`. Raises ValueError with a sentence."""
    names = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    for name in names:
        if name not in MECHANISMS:
            raise ValueError(f"{name} is none of {', '.join(MECHANISMS)}")
    if not names:
        raise ValueError(f"nobody can log in without one of {', '.join(MECHANISMS)}")
    return names


class LoginServers:
    """Makes the servers of exchanges."""

    def __init__(self, credentials: Credentials, decoys: Decoys, make_nonce: MakeNonce) -> None:
        self._credentials, self._decoys, self._make_nonce = credentials, decoys, make_nonce

    def begin(self, mechanism: str, tokens: Tokens | None = None) -> SaslServer:
        """The server of one exchange by a mechanism of MECHANISMS. `tokens`: those that the
        listener takes by OAUTHBEARER."""
        if mechanism == OAUTHBEARER:
            assert tokens is not None, "a start without keys for tokens is refused"
            return OAuthBearerServer(tokens)
        if mechanism == PLAIN:
            return PlainServer(self._credentials, self._decoys)
        return ScramServer(_SCRAM[mechanism], self._credentials, self._decoys, self._make_nonce())
