"""The plan of one receive: the contents of a buffer's Produce requests, as tables of int64.

    head       32 words: inputs of the caller, outputs of the kernels
    requests   eight words each
    topics     five words each, the requests' topics in order
    rows       twelve words each, one for each batch, the topics' partitions in order

One int64 array holds them all, so that a kernel takes one argument; `new_plan` gives one with room
for so many. A buffer that needs more stops with STOP_PLAN_FULL before its first request that does
not fit; a request that does not fit alone needs a larger plan, up to ROWS_MAX.
"""

import numpy as np

from shm.kernels.base.jit import kernel

HEAD_WORDS = 32
HEAD_START = 0  # in: where the unparsed bytes begin; out: after the last whole request
HEAD_END = 1  # in: after the last byte received
HEAD_NOW_MS = 2  # in: the time line, see smq.app.process.clock
HEAD_REQUEST_BYTES_MAX = 3  # in: a larger request breaks the protocol
HEAD_REQUEST_CAPACITY = 4
HEAD_TOPIC_CAPACITY = 5
HEAD_ROW_CAPACITY = 6
HEAD_REQUEST_COUNT = 7  # out
HEAD_TOPIC_COUNT = 8  # out
HEAD_ROW_COUNT = 9  # out
HEAD_STOP = 10  # out: why the kernel stopped
HEAD_LEVEL = 11  # out: the highest durability of any row that was taken, or LEVEL_NONE
HEAD_OUT_BYTES = 12  # out: bytes of answers
HEAD_CLOSE = 13  # out: an error with acks=0: the connection must be closed
HEAD_PARSED = 14  # out: why parsing stopped, one of the first four stops
HEAD_STOPPED_ROW = 15  # out: the row that STOP_REFERENCES or STOP_STEP is about
HEAD_OUT_START = 17  # in: where in `out` the answers begin
HEAD_THROTTLE_MS = 16  # in: the throttle time in the answers
HEAD_RULES = 18  # in: the rules for handles (shm.kernels.log.handles), their address or 0 …
HEAD_RULES_WORDS = 19  # … and length
HEAD_TRANSACTIONS = 20  # in: 1: take requests with a transactional id
HEAD_LED_ELSEWHERE = 21  # out: an answer must name the leader of a partition (KIP-951)
HEAD_ERRORS = 22  # in: where errors are counted (shm.timings.Errors), its address or 0 …
HEAD_ERRORS_WORDS = 23  # … and length
HEAD_WALL_MS = 24  # in: the wall clock
HEAD_BUDGET = 25  # in, out: bytes that may still be taken in this step

LEVEL_NONE = -1  # No row was appended or found to be a duplicate.

STOP_NEED_MORE = 0  # The rest is no whole request.
STOP_OTHER_API = 1  # The next request is not Produce, or transactional, or of another version.
STOP_MALFORMED = 2  # The next request breaks the protocol.
STOP_PLAN_FULL = 3
STOP_LOG_FULL = 4
STOP_OUT_FULL = 5
STOP_LED_ELSEWHERE = 7  # All is appended; the caller must write answers that name leaders.
STOP_REFERENCES = 6  # A batch may hold handles, or must have keys: check it, set its result.
STOP_STEP = 8  # The step has taken its share of bytes: the rest belongs to later turns.

REQUEST_WORDS = 8
REQUEST_CORRELATION = 0
REQUEST_VERSION = 1
REQUEST_ACKS = 2
REQUEST_TOPIC = 3  # The first of its topics …
REQUEST_TOPIC_COUNT = 4
REQUEST_END = 5  # After its last byte in the buffer.
REQUEST_TRANSACTIONAL = 6  # Whether it names a transactional id.
REQUEST_START = 7  # Where it begins in the buffer, its size first.

TOPIC_WORDS = 5
TOPIC_KEY_AT = 0
TOPIC_KEY_BYTES = 1
TOPIC_ROW = 2
TOPIC_ROW_COUNT = 3

ROW_WORDS = 12
ROW_PARTITION = 0
ROW_CODE = 1  # log << 32 | slot
ROW_AT = 2
ROW_BYTES = 3
ROW_VERSION = 4
ROW_STATE = 5
ROW_ERROR = 6
ROW_BASE_OFFSET = 7
ROW_APPEND_TIME = 8
ROW_LOG_START = 9
ROW_TRANSACTIONAL = 10  # As the request's.
DONE = 1
REFERENCES_CHECKED = 2  # Its handles are good, or it has none; its records have keys if they must.

# Topics, and rows, of the largest plan. A request is parsed in one step, and a request of 100 MB
# that names topics of three bytes would ask for gigabytes of plan and answers. As many batches take
# over a megabyte.
ROWS_MAX = 1 << 14

# What one step takes of a plan, in bytes of batches: checking, copying and writing a megabyte takes
# up to two milliseconds. A row costs a quarter of a microsecond, whatever its size; a handle a
# system call, which is eight times what its bytes cost.
STEP_BYTES = 2 << 20
ROW_COST_BYTES = 256
HANDLES_COST = 8
HANDLES_BYTES_MAX = (1 << 20) + 4096  # Of a batch whose handles a kernel checks: the usual limit.


def new_plan(requests: int, topics: int, rows: int) -> np.ndarray:
    """An empty plan with room for so many requests, topics and batches."""
    words = HEAD_WORDS + REQUEST_WORDS * requests + TOPIC_WORDS * topics + ROW_WORDS * rows
    plan = np.zeros(words, np.int64)
    plan[HEAD_REQUEST_CAPACITY] = requests
    plan[HEAD_TOPIC_CAPACITY] = topics
    plan[HEAD_ROW_CAPACITY] = rows
    plan[HEAD_TRANSACTIONS] = 1
    plan[HEAD_BUDGET] = STEP_BYTES
    return plan


@kernel
def request_at(i):
    """Where request i begins in the plan."""
    return HEAD_WORDS + REQUEST_WORDS * i


@kernel
def topic_at(plan, i):
    """Where topic i begins in the plan."""
    return HEAD_WORDS + REQUEST_WORDS * plan[HEAD_REQUEST_CAPACITY] + TOPIC_WORDS * i


@kernel
def row_at(plan, i):
    """Where row i begins in the plan."""
    topics = TOPIC_WORDS * plan[HEAD_TOPIC_CAPACITY]
    return HEAD_WORDS + REQUEST_WORDS * plan[HEAD_REQUEST_CAPACITY] + topics + ROW_WORDS * i
