"""Clients of one network that come all at once, and log in by a password that nobody has."""

from functools import partial

from smq.testing.simulation.clients import SimClient, SimConnection
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.logging_in import AUTHENTICATE, HANDSHAKE, Message
from smq.testing.simulation.people import Identity
from smq.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest

STRANGER = Identity("stranger", "PLAIN")
NETWORK, ADDRESSES, STRANGERS = "10.9.0", 3, 12
STAYS_MS = 2000.0
_TOKEN = f"\0{STRANGER.name}\0a password".encode()


class Stranger(SimClient):
    """One of them. Several have the same address, which is their name."""

    def __init__(self, world: Environment, number: int) -> None:
        super().__init__(world, f"{NETWORK}.{number % ADDRESSES}")
        self.identity = STRANGER

    def come(self, node: int) -> None:
        """Connect to a node, unless it has, and leave after a while."""
        if node in self.connections:
            return
        try:
            connection = self.connections[node] = SimConnection(self, node)
        except OSError:
            return
        connection.login = None  # Nothing is promised to it.
        self.later(STAYS_MS, connection.broken)
        request = SaslHandshakeRequest(mechanism=STRANGER.mechanism)
        connection.send("SaslHandshake", HANDSHAKE, request, partial(self._shaken, connection))

    def _shaken(self, connection: SimConnection, answer: Message | None) -> None:
        if answer is not None:
            request = SaslAuthenticateRequest(auth_bytes=_TOKEN)
            connection.send("SaslAuthenticate", AUTHENTICATE, request, _ignore)


def _ignore(_answer: Message | None) -> None:
    """It is refused, or the connection breaks."""
