"""The clients that a turn of the loop has touched: the kernel must learn their new state."""

from collections.abc import Callable

from smq.app.shard.connections.connection import Connection
from smq.app.shard.door.session import Session
from smq.app.shard.requests.answering import Answering


class Touched:
    """The touched clients of one shard. `tell(client)` tells the kernel whether it may take the
    client's next request."""

    def __init__(self, tell: Callable[[Connection | Session], None], answering: Answering) -> None:
        self._tell, self._answering = tell, answering
        self._clients: set[Connection | Session] = set()

    def add(self, client: Connection | Session) -> None:
        """Note that this turn has touched a client."""
        self._clients.add(client)

    def note_all(self) -> None:
        """Tell the kernel the state of all of them: it may run more than once a turn."""
        for client in self._clients.union(self._answering.dirty):
            self.note(client)

    def note(self, client: Connection | Session) -> None:
        """Tell the kernel whether it may take a client's next request."""
        if not client.closed:
            self._tell(client)

    def end_turn(self) -> None:
        """The turn is over."""
        self.note_all()
        self._clients.clear()
