"""The names of a turn's words, shared by its kernels and by Python. Facts only.

`clients` (int64 by descriptor) says who serves a connection. The kernel may, if the word is the
connection's last use (monotonic ns): then it has no partial request and no answer due. Otherwise
the word is LOOPS; PARKED while its fetch is in the table of shm.kernels.turn.parked; HELD while
answers to it are in that of shm.kernels.turn.held: the kernel takes its Produce requests then. The
descriptor to which the sync thread writes has the word SYNCS while the kernel serves it. The socket
for bells of the session in row r of shm.kernels.turn.sessions has the word SESSION - r. Who may not
do everything has LIMITED instead of a time, and LIMITED_HELD instead of HELD (see
shm.kernels.turn.limited).

A turn's words (int64, private):

    in    EPOLL, IS_WATCHED (a request of the loop waits for any partition to move),
          WATCH_ALL (the sessions that watch every partition)
          SPIN_NS (how long to spin after a turn), TURNS_NS (how long to take turns, without sleep)
          DUE_NS (until when it may sleep, monotonic; 0: it may not)
          CATALOG (the version of the catalog that `directory` was made from)
          AHEAD_MS (how far the time line is ahead of the monotonic clock)
          SESSION_SPIN_NS (how long sessions stay awake after a request)
          WAL_FD, WAL_START, WAL_END: the segment at the tail, its first position and its end
          LIMITS, BITMAPS, ACCESS (address and length each), BITMAP_WORDS, ACCESS_VERSION: see
          shm.kernels.turn.limited
    out   TURN_COUNT; HAS_IDLED (nothing arrived); RECEIVED (how often something did)
          LEFT_FD (-1, or the connection whose requests the plan holds unfinished), LEFT_STOP
          MOVED (slots in `touched` whose waiting requests are still to be answered)
          LEVEL (the highest durability of what a turn appended)
          ROW, ROW_COUNT: the answers [ROW, ROW_COUNT) are not sent
          UNSENT_FD (-1, or the connection to which only a part of a Fetch's answer was sent),
          UNSENT_START: how many of its bytes were sent
          RUNG_FD (-1, or the session that the loop must look at), BELLS (how many it rang)
    both  AWAKE: the sessions to look at without a bell; SPIN_UNTIL_NS: they stay awake until then
          IS_SHORT: a turn has just been taken, the next event may be near
    ANSWER_WORDS for each answer, from ROWS_AT on: descriptor, start and end in `out`
"""

import platform

from shm.kernels.base import words

(
    EPOLL, IS_WATCHED, SPIN_NS, TURNS_NS, WAL_FD, WAL_START, WAL_END,
    TURN_COUNT, HAS_IDLED, RECEIVED, LEFT_FD, LEFT_STOP, MOVED, LEVEL, ROW, ROW_COUNT,
    UNSENT_FD, UNSENT_START, WATCH_ALL, SESSION_SPIN_NS, RUNG_FD, BELLS, AWAKE, SPIN_UNTIL_NS,
    UNTIL_NS, DUE_NS, CATALOG, IS_SHORT, CLOCK, _CLOCK_NS, AHEAD_MS,
    LIMITS, _LIMITS_WORDS, BITMAPS, _BITMAPS_WORDS, ACCESS, _ACCESS_WORDS, BITMAP_WORDS,
    ACCESS_VERSION,
) = range(39)  # fmt: skip
ROWS_AT, ANSWER_WORDS = 40, 3
ROW_FD, ROW_START, ROW_END = 0, 1, 2
ROWS_MAX = 256  # Of one turn.
# Times of turns that answered requests: counts of Produce by bucket, then of Fetch, and the sums of
# both in ns.
TIMES_AT = ROWS_AT + ANSWER_WORDS * ROWS_MAX
TIME_SUMS_AT = TIMES_AT + 2 * words.TIME_BUCKETS
BEGAN_NS = TIME_SUMS_AT + 2  # Of the present turn, and what was counted before it.
BEGAN_PRODUCED, BEGAN_FETCHED = BEGAN_NS + 1, BEGAN_NS + 2
TURN_WORDS = BEGAN_NS + 3
EVENTS_MAX = 64
# struct epoll_event is packed on x86 alone: in words of 32 bits.
EVENT_WORDS, EVENT_FD = (3, 1) if platform.machine() == "x86_64" else (4, 2)
# Instead of a time in `clients`.
LOOPS, PARKED, HELD, SYNCS, LIMITED, LIMITED_HELD, SESSION = 0, -1, -2, -3, -4, -5, -6
# A session's row is SESSION - row: at or below SESSION nothing else may stand, or a socket's bytes
# are taken from some session's inbox.
assert min(LOOPS, PARKED, HELD, SYNCS, LIMITED, LIMITED_HELD) > SESSION
# Up to SYNCS, but above SESSION, nothing else may stand: it would be served without its bitmaps.
assert max(LIMITED, LIMITED_HELD) < SYNCS < min(LOOPS, PARKED, HELD)
# The first answer's row begins behind the last of the words, or the clock is its descriptor.
assert ACCESS_VERSION < ROWS_AT
