"""What a shard does for our other processes, over its unix socket. JSON, see smq.wire.internal.

partitions   life, since                   what has changed of partitions since that version of
                                           that life, or a first part of it (smq.shard.changes),
                                           and how full the WAL is
batches      number, offset, bytes_max,    raw batches, a JSON line before them; `synced`: answered
             synced, shown                 when the WAL has them on disk, for what is sealed must
                                           not outlive the log, or its offsets are used again;
                                           `shown`: only what everybody may see
sealed       number, end                   sealed segments hold everything below `end`; answered
                                           when the checkpoint that says so is durable
log_start    number, offset                retention has dropped what is below
unsealed     number                        what full segments of the WAL hold of it that is not
                                           sealed: end offset, newest time, bytes of each
ends         number                        up to where it is sealed, and where its log ends
attach       log                           the log's memory, read-only: its descriptor comes
                                           with the answer
"""

import json
import socket
from collections.abc import Callable
from functools import partial

from shm.kernels.base.words import WORD_GENERATION, WORD_SYNCED
from smq.app.process.acceptor import Acceptor
from smq.app.process.clock import wall_ms
from smq.app.process.link import Link
from smq.app.process.loop import Loop
from smq.app.process.peers import Peers
from smq.log.log import Log
from smq.log.reading import DamagedFrame
from smq.shard.changes import Changes
from smq.shard.shard import Led, Shard
from smq.shard.space import watch_space
from smq.wire.internal import KIND_COMMAND, InternalFrame, encode_command, encode_frame

BATCHES_BYTES_MAX = 16 * 1024 * 1024
SYNC_POLL_MS = 1.0

Handle = Callable[..., None]


class ShardCommands:
    """Serves commands; watches the WAL's space and calls the sealer when it is wanted."""

    def __init__(self, loop: Loop, shard: Shard, peers: Peers) -> None:
        self._loop, self._shard, self._peers = loop, shard, peers
        self._links: set[Link] = set()
        self._segments_seen = 0
        self._changes = Changes(shard.logs.values())
        self._commands: dict[str, Handle] = {
            "partitions": self._partitions,
            "batches": self._batches,
            "sealed": self._sealed,
            "log_start": self._log_start,
            "unsealed": self._unsealed,
            "ends": self._ends,
            "attach": self._attach,
        }

    def listen(self, listener: socket.socket) -> None:
        """Accept our other processes."""

        def accepted(sock: socket.socket, _address: str) -> None:
            self._links.add(Link(self._loop, sock, self._frame, self._links.discard))

        Acceptor(self._loop, listener, accepted)

    def _frame(self, link: Link, frame: InternalFrame) -> None:
        try:
            command = json.loads(frame.body)
            handle = self._commands[command.pop("do")]
            handle(link, frame.id, **command)
        except (KeyError, TypeError, ValueError, DamagedFrame) as error:
            self._refuse(link, frame.id, error)

    @staticmethod
    def _refuse(link: Link, frame_id: int, error: Exception) -> None:
        link.send(encode_command(frame_id, {"error": f"{type(error).__name__}: {error}"}))

    def watch_growth(self) -> None:
        """Watch the space when the WAL has begun or freed a segment: a second may be too late."""
        segments = sum(len(log.wal.segments) for log in self._shard.logs.values())
        if segments != self._segments_seen:
            self._segments_seen = segments
            self.watch_space()

    def watch_space(self) -> None:
        """Have the sealer free WAL space, and refuse producers while there is none."""
        if watch_space(self._shard, wall_ms()):
            self._peers.ask_sealer({"do": "pressure"}, lambda _: None)

    def _partitions(self, link: Link, frame_id: int, life: int = 0, since: int = 0) -> None:
        logs = self._shard.logs.values()
        generation = max(log.words[WORD_GENERATION] for log in logs)
        told = self._changes.after(since if life == generation else 0)
        answer = {
            "ok": told._asdict(),
            "life": generation,
            "wal_bytes": sum(log.wal.allocated_bytes for log in logs),
            "wal_bytes_max": len(logs) * self._shard.config.wal_bytes_max,
        }
        link.send(encode_command(frame_id, answer))

    def _batches(  # noqa: PLR0913, PLR0917  (as the command)
        self,
        link: Link,
        frame_id: int,
        number: int,
        offset: int,
        bytes_max: int,
        synced: bool = True,  # noqa: FBT001, FBT002
        shown: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        led = self._find(number)
        offsets = led.offsets()
        limit = offsets.last_stable if shown else offsets.log_end
        found = led.log.find(number, offset, limit, min(bytes_max, BATCHES_BYTES_MAX))
        if found is None:
            raise ValueError(f"offset {offset} of partition {number} has left the WAL")
        end = int(found.spans[-1].sum()) if len(found.spans) else 0

        def collected(data: bytes | DamagedFrame) -> None:
            if isinstance(data, DamagedFrame):
                self._refuse(link, frame_id, data)
                return
            head = json.dumps({"ok": {"bytes": len(data)}}).encode()
            answer = encode_frame(frame_id, KIND_COMMAND, head + b"\n" + data)
            self._send_when_synced(link, answer, led.log, end if synced else 0)

        led.log.collect(found.spans, collected)

    def _send_when_synced(self, link: Link, answer: bytes, log: Log, position: int) -> None:
        if log.words[WORD_SYNCED] >= position:
            link.send(answer)
        elif not link.closed:  # A log that has failed never gets there; the sealer gives up first.
            log.want_sync()
            again = partial(self._send_when_synced, link, answer, log, position)
            self._loop.call_later(SYNC_POLL_MS, again)

    def _sealed(self, link: Link, frame_id: int, number: int, end: int) -> None:
        led = self._find(number)
        led.log.sealed(number, end, wall_ms())
        led.log.checkpoint(lambda: link.send(encode_command(frame_id, {"ok": True})))

    def _log_start(self, link: Link, frame_id: int, number: int, offset: int) -> None:
        led = self._find(number)
        led.log.set_log_start(number, offset)
        led.log.checkpoint(lambda: link.send(encode_command(frame_id, {"ok": True})))

    def _unsealed(self, link: Link, frame_id: int, number: int) -> None:
        led = self._find(number)
        parts = led.log.lookup.filed_from(number, led.offsets().sealed_end)
        link.send(encode_command(frame_id, {"ok": parts}))

    def _ends(self, link: Link, frame_id: int, number: int) -> None:
        offsets = self._find(number).offsets()
        link.send(encode_command(frame_id, {"ok": [offsets.sealed_end, offsets.log_end]}))

    def _attach(self, link: Link, frame_id: int, log: int) -> None:
        memory = self._shard.logs[log].memory
        answer = {"ok": {"bytes": memory.layout.total_bytes}}
        link.send_with_fd(encode_command(frame_id, answer), memory.fd)

    def _find(self, number: int) -> Led:
        led = self._shard.by_number(number)
        if led is None:
            raise ValueError(f"partition {number} is not led here")
        return led
