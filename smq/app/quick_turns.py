"""Turns that a kernel takes whole (shm.kernels.turns), and how what it leaves is told.

Frequent is a connection that holds no part of a request and waits for no answer, to a shard of one
log whose partitions are visible when the WAL has them. The kernel does for it what ShardServer
does, in the same order, without a line of Python between the calls of the system.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np

from shm.kernels.plan import HEAD_END
from shm.kernels.turns import (
    EPOLL,
    EVENT_WORDS,
    EVENTS_MAX,
    HAS_IDLED,
    IS_WATCHED,
    LEFT_FD,
    LEFT_STOP,
    LEVEL,
    MOVED,
    RECEIVED,
    ROW,
    ROW_COUNT,
    ROW_WORDS,
    ROWS_AT,
    SPIN_NS,
    TURN_COUNT,
    TURN_WORDS,
    TURNS_NS,
    WAL_END,
    WAL_FD,
    WAL_START,
    take_turns,
)
from shm.kernels.words import DURABILITY_MEMORY, DURABILITY_OS, WORD_WRITTEN
from smq.app.loop import Spin
from smq.log.log import TOUCHED_MAX
from smq.shard.produce import Producing
from smq.shard.shard import Shard

DESCRIPTORS_MAX = 1 << 16  # Connections with larger ones are served as any other.
PAUSE_TURNS = 30  # After a run that was left in its first turn: alone it costs more than it saves.
TURNS_MAX_NS = 1_000_000  # Of one call: timers and other descriptors wait for so long.


class QuickTurns:
    """Runs the kernel for a shard. One that serves several logs takes no turn here."""

    def __init__(self, epoll_fd: int, shard: Shard, producing: Producing) -> None:
        self._shard, self._producing = shard, producing
        self._log = next(iter(shard.logs.values())) if len(shard.logs) == 1 else None
        turn = self._turn = np.zeros(TURN_WORDS, np.int64)
        self._words = turn.data
        self._words[EPOLL], self._words[TURNS_NS] = epoll_fd, TURNS_MAX_NS
        self._pause = 0
        self._events = np.zeros(EVENTS_MAX * EVENT_WORDS, np.int32)
        self._plain = np.zeros(DESCRIPTORS_MAX, np.uint8)
        self._touched = np.zeros(TOUCHED_MAX, np.int64)

    def may_run(self) -> bool:
        """Whether the kernel knows what to do and a run is worth it; to be asked once a turn."""
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

    def run(
        self,
        fds: Sequence[int],
        data: np.ndarray,
        spin: Spin,
        watched: np.ndarray,
        *,
        is_watched: bool,
    ) -> bool:
        """Take turns for these connections, receiving into `data`; whether anything was taken.

        It returns when records have become visible that somebody waits for: of the slots that are
        `watched` (uint8), or of any when `is_watched`.
        """
        spin_ns = spin.allowed_ns()
        log, words, producing = self._log, self._words, self._producing
        assert log is not None
        written = log.words[WORD_WRITTEN]
        segment = log.wal.segments[-1]
        words[WAL_FD], words[WAL_START], words[WAL_END] = segment.fd, segment.start, segment.end
        words[IS_WATCHED], words[SPIN_NS] = is_watched, spin_ns
        producing.begin()
        for fd in fds:
            self._plain[fd] = 1
        take_turns(
            self._turn, self._events, self._plain, data, log.memory.memory, log.links,
            log.producers, self._shard.directory, producing.plan, producing.out, log.cursors,
            self._touched, watched,
        )  # fmt: skip
        for fd in fds:
            self._plain[fd] = 0
        if not words[RECEIVED]:
            return False
        has_idled = bool(words[HAS_IDLED])
        if words[TURN_COUNT] == 1 and not has_idled:
            self._pause = PAUSE_TURNS
        spin.wanted = not has_idled
        if spin_ns:
            spin.note(came=words[TURN_COUNT] - 1, missed=has_idled)
        if log.words[WORD_WRITTEN] > written:
            log.note_written()
        self._shard.moved.update(zip(repeat(log.number), self._touched[: words[MOVED]].tolist()))
        if words[MOVED] == TOUCHED_MAX:
            self._shard.publish(log, DURABILITY_OS)
        return True

    def unsent(self) -> Iterator[tuple[int, bytes, int]]:
        """Answers of the last run that are to be sent: descriptor, bytes, level of durability."""
        words, out = self._words, self._producing.out.data
        for row in range(words[ROW], words[ROW_COUNT]):
            fd, start, end = self._turn[ROWS_AT + ROW_WORDS * row :][:ROW_WORDS].tolist()
            yield fd, bytes(out[start:end]), words[LEVEL]

    def left(self) -> tuple[int, int, int] | None:
        """What Producing.resume() is to go on with: a connection's descriptor, why the kernel
        stopped, the end of the bytes received. None: nothing is left."""
        fd = self._words[LEFT_FD]
        return None if fd < 0 else (fd, self._words[LEFT_STOP], int(self._producing.plan[HEAD_END]))
