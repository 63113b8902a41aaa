"""Words, partition columns and flags that kernels and Python share: numbers only, no code.

`shm.layout` draws the map. This file is below it, so that kernels can import the numbers. The
index's columns are in `shm.kernels.base.entries`.
"""

from itertools import count

# --- Header: indices of int64 words ---------------------------------------------------------------
HEADER_BYTES = 4096
WORD_MAGIC = 0
WORD_RING_BYTES = 1
WORD_INDEX_CAPACITY = 2
WORD_PARTITION_CAPACITY = 3
WORD_LOG = 4
WORD_GENERATION = 5
WORD_SEGMENT_BYTES = 6  # The size of WAL segments begun from now on.
WORD_SEGMENT_END = 7  # Where the WAL segment at the tail ends: frames do not cross it.
WORD_TAIL = 8  # Position after the last appended frame. Published after the frame.
WORD_INDEX_TAIL = 16  # Entries ever appended to the index. Published after the entry.
WORD_WRITTEN = 24  # Position up to which the WAL file has the frames (page cache).
WORD_SYNCED = 32  # Position up to which the disk has them. Written by the sync thread.
WORD_RING_START = 40  # The ring holds no frame below this position.
WORD_INDEX_KEEP = 41  # Index entries from this one on must not be overwritten yet.
WORD_SPACE_END = 42  # No frame may end beyond: there is no WAL space for it.
SPACE_UNLIMITED = 2**62
WORD_SPACE_LIMIT = 43  # The limit of all WAL files. No kernel reads it.
WORD_PARTITION_COUNT = 48
WORD_CLAIMED = 56  # The ring is being overwritten up to here: announced before a byte is.
WORD_COUNTERS = 64  # Counters from here on; see below.
COUNTER_PRODUCE_REQUESTS = 64
COUNTER_BATCHES_IN = 65
COUNTER_RECORDS_IN = 66
COUNTER_BYTES_IN = 67
COUNTER_FETCH_REQUESTS = 68
COUNTER_BYTES_OUT = 69
COUNTER_FETCHES_FROM_WAL = 70
COUNTER_FETCHES_FROM_SEALED = 71
COUNTER_SYNCS = 72  # Of the disk; these two are the sync thread's.
COUNTER_SYNC_NS = 73
COUNTER_SEALED_CACHE_HITS = 74  # No kernel counts these.
COUNTER_SYNC_TIMES = 80  # TIME_BUCKETS words, also its: how many syncs took how long.

# A histogram of times: bucket b counts what took less than 2 ** b microseconds, the last one all
# else.
TIME_BUCKETS = 26
# The sync thread counts here without asking anybody. Behind the header is the first partition's
# row, whose log end it would write over: offsets would be given away twice.
assert 8 * (COUNTER_SYNC_TIMES + TIME_BUCKETS) <= HEADER_BYTES

# --- Partition rows: indices of int64 columns -----------------------------------------------------
PARTITION_COLUMNS = 24
PARTITION_ROW_BYTES = 8 * PARTITION_COLUMNS
P_NUMBER = 0  # The partition's number in frames and files.
P_FLAGS = 1
P_LOG_START = 2
P_LOG_END = 3
P_HIGH_WATERMARK = 4  # Visible means below this word; published with release.
P_LAST_STABLE = 5
P_SEALED_END = 6  # Sealed segments hold everything below this offset.
P_EPOCH = 7  # The leader epoch: in batches and answers. Frames have WORD_GENERATION.
P_BATCH_BYTES_MAX = 8
P_TIMESTAMP_BEFORE_MAX = 9  # How far a CreateTime may lie in the past, ms.
P_TIMESTAMP_AFTER_MAX = 10  # … and in the future.
P_LAST_ENTRY = 11  # The newest index entry of this partition, -1: none.
P_UNSEALED_BYTES = 12
P_MAX_TIMESTAMP = 13
P_DIRTY = 14  # Touched since the caller last looked (scratch of `publish`).
P_UNSEALED_SINCE_MS = 15  # When the oldest unsealed batch came (time line), 0: none.
P_OPEN_FROM = 16  # 1 + the first offset of the oldest open transaction, 0: none is open.
P_ABORTED_END = 17  # After the last marker of an aborted transaction that the log has, 0: none.
P_COMPACTED_END = 18  # Below it only sealed segments tell: compaction may have removed records.
P_DECIDED_END = 19  # Below it sealed segments hold only what is decided; above, also the rest.
P_LED_FROM = 20  # Where its newest leadership in this log begins: kernels read nothing below.
# Kernels check no bounds. A column more would be the number of the next partition, and that one's
# frames would be taken for another's when they are read back.
assert P_LED_FROM < PARTITION_COLUMNS

FLAG_IN_USE = 1
FLAG_LOG_APPEND_TIME = 2
FLAG_READ_ONLY = 4  # The WAL cannot be written: error 56 until it can.
FLAG_FETCH_LEFT = 16  # Python answers fetches.
FLAG_LOOKED_INTO = 32  # Python checks each batch before it is appended.
FLAG_CLOSED = 64  # Its leader takes no appends now, for it moves: appends stop with STOP_CLOSED.
FLAG_TAIL = 128  # Another log leads it: appends get NOT_LEADER_OR_FOLLOWER, kernels read nothing.
DURABILITY_SHIFT = 8  # Bits 8-9 of the flags.
DURABILITY_MEMORY = 0
DURABILITY_OS = 1
DURABILITY_DISK = 2
# A flag among the level's bits would turn `disk` into another level: acks before the sync.
assert DURABILITY_DISK <= 3
assert FLAG_TAIL < 1 << DURABILITY_SHIFT

# --- Frames ---------------------------------------------------------------------------------------
FRAME_MAGIC = 0x46514D53  # "SMQF", little endian.
FRAME_HEADER_BYTES = 48
FRAME_ALIGNMENT_BYTES = 64
BATCH_HEADER_BYTES = 61  # Kafka's record batch v2, up to the first record.
FRAME_BYTES_MIN = 128  # Header and an empty batch, aligned.
FRAME_KIND_BATCH = 1
FRAME_KIND_PADDING = 2
FRAME_KIND_ADOPTION = 3  # What a log takes over of a partition (smq.log.adoption).
FRAME_KIND_SKIPPABLE = 1 << 30  # Set: a reader that does not know the kind passes the frame over.
FRAME_MAGIC_AT = 0
FRAME_CHECK_AT = 4
FRAME_POSITION_AT = 8
FRAME_SYNCED_AT = 16
FRAME_GENERATION_AT = 24
FRAME_BYTES_AT = 28
FRAME_PARTITION_AT = 32
FRAME_KIND_AT = 36
FRAME_LEVEL_AT = 40  # The topic's durability when the frame was written.
# The batch begins where the header's last field, of eight bytes, ends: what overlaps is lost, and
# only a reader would find out.
assert FRAME_LEVEL_AT + 8 == FRAME_HEADER_BYTES
# `frame_bytes` rounds up with a mask: with another alignment frames would overlap.
assert FRAME_ALIGNMENT_BYTES & (FRAME_ALIGNMENT_BYTES - 1) == 0
# `pad_to` writes a header at any tail. It must fit before the end of ring or segment, or it runs
# into the index's memory, or over the oldest frame.
assert FRAME_HEADER_BYTES <= FRAME_ALIGNMENT_BYTES
# The index is sized by this: with smaller frames, entries would be overwritten before the tables of
# their segment are filed, and no fetch would find their records any more.
assert FRAME_BYTES_MIN - FRAME_ALIGNMENT_BYTES < FRAME_HEADER_BYTES + BATCH_HEADER_BYTES

# --- Record batch v2: offsets from its first byte (KIP-98) ----------------------------------------
BATCH_BASE_OFFSET_AT = 0
BATCH_LENGTH_AT = 8
BATCH_LEADER_EPOCH_AT = 12
BATCH_MAGIC_AT = 16
BATCH_CRC_AT = 17
BATCH_ATTRIBUTES_AT = 21
BATCH_LAST_OFFSET_DELTA_AT = 23
BATCH_BASE_TIMESTAMP_AT = 27
BATCH_MAX_TIMESTAMP_AT = 35
BATCH_PRODUCER_ID_AT = 43
BATCH_PRODUCER_EPOCH_AT = 51
BATCH_BASE_SEQUENCE_AT = 53
BATCH_RECORD_COUNT_AT = 57
BATCH_OVERHEAD_BYTES = 12  # baseOffset and length: not counted by the length field.
ATTRIBUTE_CODEC_MASK = 7
ATTRIBUTE_LOG_APPEND_TIME = 8
ATTRIBUTE_TRANSACTIONAL = 16
ATTRIBUTE_CONTROL = 32
# The CRC covers everything behind itself. A gap between would be bytes of acked batches that
# nothing checks.
assert BATCH_CRC_AT + 4 == BATCH_ATTRIBUTES_AT
# Records begin behind the last field of the header, and batches where the length's count ends: a
# reader that is off by one finds neither.
assert BATCH_RECORD_COUNT_AT + 4 == BATCH_HEADER_BYTES
assert BATCH_LENGTH_AT + 4 == BATCH_OVERHEAD_BYTES

# --- The plan of a receive, drawn in shm.kernels.log.plan -----------------------------------------
HEAD_WORDS = 32
_head = count()
HEAD_START = next(_head)  # in: where the unparsed bytes begin; out: after the last whole request
HEAD_END = next(_head)  # in: after the last byte received
HEAD_NOW_MS = next(_head)  # in: the time line, see smq.app.process.clock
HEAD_REQUEST_BYTES_MAX = next(_head)  # in: a larger request breaks the protocol
HEAD_REQUEST_CAPACITY = next(_head)
HEAD_TOPIC_CAPACITY = next(_head)
HEAD_ROW_CAPACITY = next(_head)
HEAD_REQUEST_COUNT = next(_head)  # out
HEAD_TOPIC_COUNT = next(_head)  # out
HEAD_ROW_COUNT = next(_head)  # out
HEAD_STOP = next(_head)  # out: why the kernel stopped
HEAD_LEVEL = next(_head)  # out: the highest durability of any row that was taken, or LEVEL_NONE
HEAD_OUT_BYTES = next(_head)  # out: bytes of answers
HEAD_CLOSE = next(_head)  # out: an error with acks=0: the connection must be closed
HEAD_PARSED = next(_head)  # out: why parsing stopped, one of the first four stops
HEAD_STOPPED_ROW = next(_head)  # out: the row that STOP_REFERENCES, _STEP or _CLOSED is about
HEAD_OUT_START = next(_head)  # in: where in `out` the answers begin
HEAD_THROTTLE_MS = next(_head)  # in: the throttle time in the answers
HEAD_RULES = next(
    _head
)  # in: the rules for handles (shm.kernels.log.handles), their address or 0 …
HEAD_RULES_WORDS = next(_head)  # … and length
HEAD_TRANSACTIONS = next(_head)  # in: 1: take requests with a transactional id
HEAD_LED_ELSEWHERE = next(_head)  # out: an answer must name the leader of a partition (KIP-951)
HEAD_ERRORS = next(_head)  # in: where errors are counted (shm.timings.Errors), its address or 0 …
HEAD_ERRORS_WORDS = next(_head)  # … and length
HEAD_WALL_MS = next(_head)  # in: the wall clock
HEAD_BUDGET = next(_head)  # in, out: bytes that may still be taken in this step
# Kernels check no bounds, so what is too long lies in the next table: an ack would go out for a
# batch that was refused. The same holds for requests, topics and rows below.
assert next(_head) <= HEAD_WORDS

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
STOP_FETCH_LEFT = 9  # The next request is a Fetch that the turn's kernel has left: ask none again.
STOP_RIGHTS = 10  # Nothing is taken: no bitmap says that the client may append to all partitions.
STOP_CLOSED = 11  # The partition of HEAD_STOPPED_ROW moves: no row from there on is appended.

REQUEST_WORDS = 8
_request = count()
REQUEST_CORRELATION = next(_request)
REQUEST_VERSION = next(_request)
REQUEST_ACKS = next(_request)
REQUEST_TOPIC = next(_request)  # The first of its topics …
REQUEST_TOPIC_COUNT = next(_request)
REQUEST_END = next(_request)  # After its last byte in the buffer.
REQUEST_TRANSACTIONAL = next(_request)  # Whether it names a transactional id.
REQUEST_START = next(_request)  # Where it begins in the buffer, its size first.
assert next(_request) <= REQUEST_WORDS

TOPIC_WORDS = 5
_topic = count()
TOPIC_KEY_AT = next(_topic)
TOPIC_KEY_BYTES = next(_topic)
TOPIC_ROW = next(_topic)
TOPIC_ROW_COUNT = next(_topic)
assert next(_topic) <= TOPIC_WORDS

ROW_WORDS = 12
_row = count()
ROW_PARTITION = next(_row)
ROW_CODE = next(_row)  # log << 32 | slot
ROW_AT = next(_row)
ROW_BYTES = next(_row)
ROW_VERSION = next(_row)
ROW_STATE = next(_row)
ROW_ERROR = next(_row)
ROW_BASE_OFFSET = next(_row)
ROW_APPEND_TIME = next(_row)
ROW_LOG_START = next(_row)
ROW_TRANSACTIONAL = next(_row)  # As the request's.
assert next(_row) <= ROW_WORDS
DONE = 1
REFERENCES_CHECKED = 2  # Its handles are good, or it has none; its records have keys if they must.

# Topics, and rows, of the largest plan. A request is parsed in one step, and a request of 100 MB
# that names topics of three bytes would ask for gigabytes of plan and answers. As many batches take
# over a megabyte.
PLAN_ROWS_MAX = 1 << 14

# What one step takes of a plan, in bytes of batches: checking, copying and writing a megabyte takes
# up to two milliseconds. A row costs a quarter of a microsecond, whatever its size; a handle a
# system call, which is eight times what its bytes cost.
STEP_BYTES = 2 << 20
ROW_COST_BYTES = 256
HANDLES_COST = 8
HANDLES_BYTES_MAX = (1 << 20) + 4096  # Of a batch whose handles a kernel checks: the usual limit.
