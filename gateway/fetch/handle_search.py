"""Fetches of topics that deliver payloads inline: which batches go out as they are.

The sealer's reader rewrites a batch that may hold handles, with the payloads as values
(smq.sealer.inline): the shard's loop reads no payload. The loop only searches batches in the ring
for the header's bytes; batches that have left the ring all go to the reader.
"""

from shm.kernels.record.references import count_plain
from smq.log.lookup import FoundBatches
from smq.log.reading import ReadableLog

SEARCHED_BYTES_MAX = 8 * 1024 * 1024  # Of an answer: some 4 ms, if all but a handle is in them.


class Search:
    """The search for handles in all batches of one answer.

    `bytes_left` is what it may still look through; the last batch may take it below zero.
    """

    def __init__(self) -> None:
        self.bytes_left = SEARCHED_BYTES_MAX

    @property
    def is_over(self) -> bool:
        """Whether the next answer has to go on."""
        return self.bytes_left <= 0

    def before_handles(self, log: ReadableLog, found: FoundBatches) -> FoundBatches | None:
        """The batches before the first that may hold a handle; None: the very first may."""
        if not len(found.spans):
            return found
        if not log.in_ring(int(found.spans[0, 0])):  # Those behind it were appended later.
            return None
        count, searched_bytes = count_plain(log.memory.ring, found.spans)
        self.bytes_left -= int(searched_bytes)
        spans = found.spans[: int(count)]
        return FoundBatches(spans, int(spans[:, 1].sum())) if count else None
