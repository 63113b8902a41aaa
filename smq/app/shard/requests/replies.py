"""Replies on their way out: acks and answers until they may go, and the clients of a turn."""

from collections.abc import Callable

from smq.app.shard.connections.connection import Connection
from smq.app.shard.door.session import Session
from smq.app.shard.requests.acks import Acks
from smq.app.shard.requests.answering import Answering


class Replies:
    """The replies of one shard.

    acks        of Produce, which wait until their records are durable
    answering   all others
    tell        tells the kernel whether it may take a client's next request
    """

    def __init__(
        self, acks: Acks, answering: Answering, tell: Callable[[Connection | Session], None]
    ) -> None:
        self.acks, self.answering, self._tell = acks, answering, tell
        self._touched: set[Connection | Session] = set()

    def touch(self, client: Connection | Session) -> None:
        """This turn has touched a client: the kernel must learn its new state."""
        self._touched.add(client)

    def change(self, client: Connection | Session) -> None:
        """A client's slots have changed: send at the turn's end what is open."""
        self.answering.dirty[client] = None

    def note_all(self) -> None:
        """Tell the kernel the state of all touched clients: it may run more than once a turn."""
        for client in self._touched.union(self.answering.dirty):
            self.note(client)

    def note(self, client: Connection | Session) -> None:
        """Tell the kernel whether it may take a client's next request."""
        if not client.closed:
            self._tell(client)

    def end_turn(self) -> None:
        """Send the acks that are due, then everything else that is open."""
        for client in self.acks.open():
            self.change(client)
        dirty, self.answering.dirty = self.answering.dirty, {}
        for client in dirty:
            client.flush()
        self._touched.update(dirty)
        self.note_all()
        self._touched.clear()
