"""Whole turns taken by a kernel (shm.kernels.turn.turns), and how it reports what it leaves.

The kernel serves the frequent case: a connection that holds no part of a request and waits for no
answer, to a shard of one log whose partitions are visible once the WAL has them. It does what
ShardServer does, in the same order, without Python between the system calls. Waiting fetches wait
in the kernel's table. Sessions of the local door are served alike. The kernel may also sleep in the
loop's place: then the request that wakes it is answered without Python too.
"""

from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np

from gateway.quick_fetch import Answer, QuickFetch
from shm.kernels.base.words import DURABILITY_MEMORY, DURABILITY_OS, HEAD_END, WORD_WRITTEN
from shm.kernels.turn.spin import SPIN_MAX_NS
from shm.kernels.turn.turns import take_turns
from shm.kernels.turn.words import (
    AHEAD_MS,
    ANSWER_WORDS,
    AWAKE,
    BELLS,
    CATALOG,
    DUE_NS,
    EPOLL,
    EVENT_WORDS,
    EVENTS_MAX,
    HAS_IDLED,
    HELD,
    IS_SHORT,
    IS_WATCHED,
    LEFT_FD,
    LEFT_STOP,
    LEVEL,
    LIMITED,
    LIMITED_HELD,
    LOOPS,
    MOVED,
    PARKED,
    RECEIVED,
    ROW,
    ROW_COUNT,
    ROWS_AT,
    RUNG_FD,
    SESSION_SPIN_NS,
    SPIN_NS,
    SPIN_UNTIL_NS,
    SYNCS,
    TURN_COUNT,
    TURN_WORDS,
    TURNS_NS,
    UNSENT_FD,
    UNSENT_START,
    WAL_END,
    WAL_FD,
    WAL_START,
    WATCH_ALL,
)
from smq.app.process.clock import ahead_ms, monotonic_ns
from smq.app.process.loop import Spin
from smq.app.shard.connections.connection import Connection
from smq.app.shard.door.session import Session
from smq.app.shard.door.session_table import SessionTable
from smq.app.shard.turns.limits import Limits
from smq.app.shard.waiting.held_answers import HeldAnswers
from smq.app.shard.waiting.parked_fetches import ParkedTable
from smq.log.log import TOUCHED_MAX, Log
from smq.model.config import Config
from smq.shard.produce import Marks, Producing, marks_of
from smq.shard.shard import Shard

DESCRIPTORS_MAX = 1 << 16  # The loop serves connections with larger ones.
PAUSE_TURNS = 30  # After a run that met another case at once: it costs more than it saves.
TURNS_MAX_NS = 1_000_000  # Per call, awake: timers and other descriptors wait this long.
_NOT_TAKEN = {LOOPS, PARKED}
_IN_A_TABLE = {PARKED, HELD, LIMITED_HELD}


class QuickTurns:
    """Runs the kernel for a shard. A shard with several logs takes no turns here.

    watched    int32 by slot: not 0 where a request waits in the loop
    published  int64: the version of the catalog that was published last
    clients    int64 by descriptor: what the kernel may do (shm.kernels.turn.words)
    parked     the fetches that wait in the kernel's table
    held       the answers that wait in the kernel's table for the disk
    syncs_fd   the descriptor to which the sync thread writes, -1: there is none. It is the loop's
               while that waits for a sync too
    sessions   the sessions that the kernel serves
    limits     of the clients that may not do everything; None: these are the loop's
    """

    def __init__(  # noqa: PLR0913, PLR0917  (what a kernel works with)
        self,
        epoll_fd: int,
        shard: Shard,
        producing: Producing,
        fetching: QuickFetch,
        watched: np.ndarray,
        published: np.ndarray,
        make_held: Callable[[Log | None, np.ndarray], HeldAnswers],
    ) -> None:
        self._shard, self._producing = shard, producing
        self._fetching, self._watched, self._published = fetching, watched, published
        self._log = next(iter(shard.logs.values())) if len(shard.logs) == 1 else None
        turn = self._turn = np.zeros(TURN_WORDS, np.int64)
        self._words = turn.data
        self._words[EPOLL], self._words[TURNS_NS] = epoll_fd, TURNS_MAX_NS
        self._words[AHEAD_MS] = ahead_ms()
        self._pause = 0
        self._events = np.zeros(EVENTS_MAX * EVENT_WORDS, np.int32)
        self.clients = np.zeros(DESCRIPTORS_MAX, np.int64)
        self._touched = np.zeros(TOUCHED_MAX, np.int64)
        self.parked = ParkedTable(len(watched))
        self.held, self.syncs_fd = make_held(self._log, self.clients), -1
        self.sessions = SessionTable(len(watched))
        self.limits: Limits | None = None
        if shard.bitmaps is not None:
            self.limits = Limits(shard.bitmaps, turn, shard.access.words, DESCRIPTORS_MAX)
        self.take_settings(shard.config)

    def take_settings(self, config: Config) -> None:
        """Use other settings from now on."""
        self._words[SESSION_SPIN_NS] = 1000 * config.session_spin_us

    @property
    def words(self) -> np.ndarray:
        """The words of the turn (shm.kernels.turn.words)."""
        return self._turn

    # --- whose requests the kernel takes ---------------------------------------------------------

    def note(self, client: Connection | Session) -> None:
        """Tell the kernel whether it may take a client's next request, after the loop has touched
        it."""
        if client.fd < DESCRIPTORS_MAX and self.clients[client.fd] not in _IN_A_TABLE:
            standing = self.clients[client.fd] = client.standing
            if standing == LIMITED:
                self._limit(client)

    def _limit(self, client: Connection | Session) -> None:
        if self.limits is None:
            self.clients[client.fd] = LOOPS
        else:
            assert isinstance(client, Connection)
            self.limits.note(client)

    def takes(self, fd: int) -> bool:
        """Whether the kernel takes a descriptor's input."""
        if fd == self.syncs_fd:
            self._lend_syncs()
        return fd < DESCRIPTORS_MAX and self.clients[fd] not in _NOT_TAKEN

    def _lend_syncs(self) -> None:
        if 0 <= self.syncs_fd < DESCRIPTORS_MAX and self._log is not None:
            self.clients[self.syncs_fd] = LOOPS if self._log.syncs.is_awaited() else SYNCS

    def is_parked(self, fd: int) -> bool:
        """Whether a client's fetch waits in the kernel's table."""
        return fd < DESCRIPTORS_MAX and bool(self.clients[fd] == PARKED)

    def forget(self, fd: int) -> None:
        """Forget a closed client."""
        if self.is_parked(fd):
            self.parked.take(fd)
        self.held.forget(fd)
        if fd < DESCRIPTORS_MAX:
            self.clients[fd] = LOOPS

    def last_used_ns(self, fd: int) -> int:
        """When a client last used its connection (monotonic), as far as the kernel knows: one whose
        fetch waits there does so now."""
        if fd >= DESCRIPTORS_MAX:
            return 0
        if self.clients[fd] in _IN_A_TABLE:
            return monotonic_ns()
        if self.clients[fd] == LIMITED and self.limits is not None:
            return self.limits.last_used_ns(fd)
        return int(self.clients[fd])

    # --- turns -----------------------------------------------------------------------------------

    def may_run(self) -> bool:
        """Whether the kernel is ready and a run is worth it; ask once a turn."""
        log, shard = self._log, self._shard
        if self._pause:
            self._pause -= 1
            return False
        if log is None or log.failed is not None or shard.throttle.is_on:
            return False
        if DURABILITY_MEMORY in shard.levels or not log.disk.writes_plainly:
            return False
        segments = log.wal.segments
        return bool(segments) and segments[-1].first_entry >= 0 and log.is_written()

    def run(self, data: np.ndarray, spin: Spin, due_ns: int, *, is_watched: bool) -> bool:
        """Take turns, receiving into `data`; whether anything was taken.

        May sleep until `due_ns` (monotonic), repeatedly; 0: it may not. Returns when records become
        visible for which a request waits in the loop, or any records if `is_watched`.
        """
        log, words, producing = self._log, self._words, self._producing
        assert log is not None
        written = log.words[WORD_WRITTEN]
        segment = log.wal.segments[-1]
        words[WAL_FD], words[WAL_START], words[WAL_END] = segment.fd, segment.start, segment.end
        words[IS_WATCHED], words[DUE_NS] = is_watched, due_ns
        words[IS_SHORT], words[SPIN_NS] = spin.wanted_ns > 0, spin.wanted_ns or SPIN_MAX_NS
        words[CATALOG] = self._shard.catalog_version
        sessions = self.sessions
        words[WATCH_ALL], words[AWAKE] = sessions.watch_all, sessions.awake
        producing.begin()
        self._lend_syncs()
        self.held.begin()
        take_turns(
            self._turn, self._events, self.clients, data,
            (log.memory.memory, log.links, log.producers.table, self._shard.directory),
            (producing.plan, producing.out), self._fetching.arrays, self.parked.arrays,
            sessions.arrays, log.cursors, self._touched, self._watched, spin.words,
            self._published, self.held.arrays,
        )  # fmt: skip
        self.held.end()
        sessions.awake, sessions.spin_until_ns = words[AWAKE], words[SPIN_UNTIL_NS]
        spin.wanted_ns = SPIN_MAX_NS if words[TURN_COUNT] > 0 and not words[HAS_IDLED] else 0
        is_ours = words[RUNG_FD] >= 0 or (words[RECEIVED] > 0 and words[LEFT_FD] < 0)
        if words[TURN_COUNT] == 1 and not is_ours:
            self._pause = PAUSE_TURNS
        if not words[RECEIVED]:
            return words[RUNG_FD] >= 0
        if log.words[WORD_WRITTEN] > written:
            log.note_written()
        self._shard.moved.update(zip(repeat(log.number), self._touched[: words[MOVED]].tolist()))
        if words[MOVED] == TOUCHED_MAX:
            self._shard.publish(log, DURABILITY_OS)
        return True

    def unsent_fetch(self) -> tuple[int, Answer] | None:
        """A Fetch's answer that a socket did not take whole: descriptor, remaining bytes."""
        fd, sent = self._words[UNSENT_FD], self._words[UNSENT_START]
        return None if fd < 0 else (fd, self._fetching.answer(sent))

    def rung(self) -> tuple[Session, int] | None:
        """A session that the loop must serve, and how often it rang."""
        fd = self._words[RUNG_FD]
        return None if fd < 0 else (self.sessions.at(fd), self._words[BELLS])

    def unsent(self) -> Iterator[tuple[int, bytes, Marks]]:
        """Unsent answers of the last run: descriptor, bytes, where they are due."""
        words, out = self._words, self._producing.out.data
        assert self._log is not None
        marks = marks_of(self._log, words[LEVEL])
        for row in range(words[ROW], words[ROW_COUNT]):
            fd, start, end = self._turn[ROWS_AT + ANSWER_WORDS * row :][:ANSWER_WORDS].tolist()
            yield fd, bytes(out[start:end]), marks

    def left(self) -> tuple[int, int, int] | None:
        """The input for Producing.resume(): a connection's descriptor, why the kernel stopped, the
        end of the received bytes. None: nothing is left."""
        fd = self._words[LEFT_FD]
        return None if fd < 0 else (fd, self._words[LEFT_STOP], int(self._producing.plan[HEAD_END]))
