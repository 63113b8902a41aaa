"""The names of a session's words, shared by its kernels and by Python. Facts only, no code.

`shm.session` draws the map.
"""

# --- Facts, written once before the memory is handed over. Indices of int64 words. ---
SESSION_MAGIC = 0
SESSION_INBOX_BYTES = 1
SESSION_ANSWERS_BYTES = 2
SESSION_REQUEST_BYTES_MAX = 3

# --- Written by the shard ---
INBOX_HEAD = 8  # Read up to here: the room below is free. A futex.
SHARD_SLEEP = 16  # Odd: the shard looks at the inbox again after a bell, and not before.
ANSWERS_TAIL = 24  # Published after the answers.
ROOM_SLEEP = 25  # Odd: the shard goes on when there is room for answers, after a bell.
EVENTS = 32  # Counts events of watched partitions.

# --- Written by the client ---
INBOX_TAIL = 64  # Published after the requests.
ROOM_WANTED = 72  # Nonzero: the client waits for INBOX_HEAD to move.
ANSWERS_HEAD = 80  # Taken up to here.
CLIENT_SLEEP = 88  # Odd: the client waits for a bell.
WATCH_VERSION = 96  # Published after the list.
WATCH_COUNT = 97  # Numbers in the list; WATCH_ALL: it stands for every partition.
WATCH_ALL = -1

# --- Parts ---
WATCH_AT = 4096
WATCH_MAX = 4096  # Partitions one session may watch by number; for more, watch all.
INBOX_AT = WATCH_AT + 8 * WATCH_MAX
# The list is written while words are read. A word in it would be a tail that no client has set.
assert 8 * (WATCH_COUNT + 1) <= WATCH_AT

ALIGNMENT_BYTES = 8  # Of requests in the inbox, so that their first word is read as one.
RESTART_BYTES = 65536  # An empty inbox of which this much is used restarts at its beginning.
PAD = -1  # Instead of a request's size: the next one begins at the inbox's start.
# `aligned` rounds up with a mask, and the shard reads a whole word where a request begins: another
# alignment would have it read the size from the request before.
assert ALIGNMENT_BYTES & (ALIGNMENT_BYTES - 1) == 0
assert ALIGNMENT_BYTES >= 8

# --- What each side keeps for itself (`side`, int64): neither trusts its words in the memory ---
SIDE_WORDS = 16
IN_BYTES = 0  # Size of the inbox.
OUT_AT = 1  # Where the answers' ring begins …
OUT_BYTES = 2  # … and its size.
REQUEST_MAX = 3  # Of one request, without its size.
IN_POSITION = 4  # The shard's head of the inbox; the client's tail.
OUT_POSITION = 5  # The shard's tail of the answers; the client's head.
SLEEP = 6  # Of this side: odd while it waits for a bell.
OUT_SLEEP = 7  # The shard's ROOM_SLEEP.
RUNG = 8  # The other side's sleep for which we have already rung …
RUNG_ROOM = 9  # … and the other one of the shard.
COUNT = 10  # Of events: told by the shard, seen by the client.
BELLS_IN_VAIN = 11  # The shard's: bells in a row with nothing behind them.
WATCH_SEEN = 12  # The shard's: the version of the watch list in use.
# Kernels check no bounds: the positions of another session may be behind these.
assert WATCH_SEEN < SIDE_WORDS

FAULT_TAIL = -1  # The inbox's tail is where it cannot be.
FAULT_SIZE = -2  # A request of impossible size.
FAULT_CUT = -3  # A request beyond the tail or the inbox's end.
FAULT_HEAD = -4  # The answers' head is where it cannot be.
