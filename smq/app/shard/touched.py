"""The clients that a turn of the loop has touched: the kernel must learn their new state."""

from smq.app.shard.answering import Answering
from smq.app.shard.connection import Connection
from smq.app.shard.quick_turns import QuickTurns
from smq.app.shard.session import Session


class Touched:
    """The touched clients of one shard."""

    def __init__(self, quick_turns: QuickTurns, answering: Answering) -> None:
        self._quick_turns, self._answering = quick_turns, answering
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
            self._quick_turns.note(client)

    def end_turn(self) -> None:
        """The turn is over."""
        self.note_all()
        self._clients.clear()
