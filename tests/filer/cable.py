"""A way to a server that can be cut, and mended; and a server that cuts its answers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import Self

PIECE_BYTES = 1 << 16


class Cable:
    """Passes bytes between whoever connects to `port` and a server on this host."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._lock = Lock()
        self._ends: list[socket.socket] = []
        self._listener = self._listen(0)
        self.port = self._listener.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        with self._lock:
            for end in (self._listener, *self._ends):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
            self._ends.clear()

    def mend(self) -> None:
        """Take connections again."""
        self._listener = self._listen(self.port)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        Thread(target=self._serve, args=(listener,), daemon=True).start()
        return listener

    def _serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                with self._lock:
                    self._ends += client, server
                for here, there in ((client, server), (server, client)):
                    Thread(target=_pass_on, args=(here, there), daemon=True).start()


def _pass_on(here: socket.socket, there: socket.socket) -> None:
    with suppress(OSError):
        while piece := here.recv(PIECE_BYTES):
            there.sendall(piece)
        there.shutdown(socket.SHUT_WR)


@contextmanager
def cut_short() -> Iterator[str]:
    """A server whose answers are cut in the middle of their headers, by its address."""

    def answer() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    while (received := client.recv(PIECE_BYTES)) and b"\r\n\r\n" not in received:
                        pass
                    client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: te")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
