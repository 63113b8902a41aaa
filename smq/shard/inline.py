"""Fetches of topics that deliver payloads inline: which batches go out as they are.

The sealer's reader rewrites a batch that may hold handles, with the payloads as values
(smq.sealer.inline): the shard's loop reads no payload. The loop only searches batches in the ring
for the header's bytes; batches that have left the ring all go to the reader.
"""

from shm.kernels.record.references import may_refer
from smq.log.lookup import Found
from smq.log.reading import ReadableLog
from smq.model.catalog import Topic


def delivers_inline(topic: Topic) -> bool:
    """Whether fetches of a topic return payloads, where they fit."""
    return topic.configs.get("smq.reference.delivery") == "inline"


def before_handles(log: ReadableLog, found: Found) -> Found | None:
    """The batches before the first that may hold a handle; None: the very first may."""
    ring, ring_bytes = log.memory.ring, log.memory.layout.ring_bytes
    for index, (position, size) in enumerate(found.spans.tolist()):
        if not log.in_ring(position) or may_refer(ring, position % ring_bytes, size):
            spans = found.spans[:index]
            return Found(spans, int(spans[:, 1].sum())) if index else None
    return found
