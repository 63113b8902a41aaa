"""SASL's requests where there is no login to do. Those where there is one: tests.oracle.login."""

from smq.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest
from tests.oracle.dialogues import dialogue
from tests.oracle.talk import Talk


@dialogue("SaslHandshake")
def handshakes(talk: Talk) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512", "there-is-none", ""):
        talk.ask(f"of {mechanism!r}", SaslHandshakeRequest(mechanism=mechanism))


@dialogue("SaslAuthenticate", also=(1,))
def tokens(talk: Talk) -> None:
    for words, token in (("a password", b"\0alice\0secret"), ("nothing", b"")):
        talk.ask(f"with {words}", SaslAuthenticateRequest(auth_bytes=token))
