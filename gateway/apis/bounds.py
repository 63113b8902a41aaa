"""The bounds of each API's requests, and how a long answer is made in parts.

Each API bounds its requests: none may hold a loop for more than 10 ms, or grow a process by more
than 4 times its own size plus a megabyte. tests/gateway/test_bounds.py sends the largest of each,
test_contents.py about the most there may be. A topic that is created is answered with its configs.

Produce keeps to them too: what would take longer is finished in steps (smq.shard.unfinished), and
large batches are inflated in a lane, one after the other. Beside the request itself that takes a
batch and the pieces it is joined from, 24 MiB a shard, whatever the number of requests. The number
of a request's batches is bounded (shm.kernels.log.plan.ROWS_MAX): each step parses them again.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Cut:
    """How requests are read, and answers made, in parts.

    request      the array that is cut, if the request is: (array, array in its elements, …)
    response     the arrays whose rows the parts give, likewise
    portion_max  elements of a portion: a few milliseconds of work
    """

    request: tuple[str, ...]
    response: tuple[str, ...]
    portion_max: int = 300


@dataclass(frozen=True)
class Bounds:
    """The bounds of a request. A larger one closes the connection, as in Kafka a request above
    socket.request.max.bytes does.

    bytes_max     without its size
    elements_max  of all its arrays together
    cut           how it is answered in parts; None: always whole
    few_bytes     a request of this size holds no more elements than one that is handled whole may:
                  they need not be counted
    """

    bytes_max: int
    elements_max: int
    cut: Cut | None = None
    few_bytes: int = 1024  # Each takes a byte at least.


KiB, MiB = 1024, 1024 * 1024
WHOLE_ELEMENTS_MAX = 1000  # At once: reading, handling, writing one takes ten microseconds.

# A few strings, of 32 KiB at most each, and no arrays of note.
SMALL = Bounds(128 * KiB, WHOLE_ELEMENTS_MAX)

# The contents of a group: Kafka stores them as one record of a megabyte at most.
GROUP = Bounds(1 * MiB, WHOLE_ELEMENTS_MAX)

# Other requests that are handled at once.
WHOLE = Bounds(1 * MiB, WHOLE_ELEMENTS_MAX)

# Those that are read at once, and handled in parts.
IN_PARTS = replace(WHOLE, cut=Cut((), ("results",)))


def answered_in_parts(*response: str) -> Bounds:
    """A request that is handled whole and whose answer is cut at the rows of these arrays."""
    return Bounds(1 * MiB, 2 * WHOLE_ELEMENTS_MAX, Cut((), response))


def listing(cut: Cut, *, elements_max: int = 20_000, bytes_max: int = 1 * MiB) -> Bounds:
    """10,000 partitions, each in a topic of its own, in names of usual length."""
    return Bounds(bytes_max, elements_max, cut)


PARTITIONS = ("topics", "partitions")
NAMED = listing(Cut(PARTITIONS, PARTITIONS))

# A topic takes 3 bytes at least, an offset 14.
OFFSETS = replace(NAMED, few_bytes=3 * 1024)
