"""Payloads and handles for tests: made without a filer, or put into one."""

from collections.abc import Sequence

from smq.filer.content import crc_of
from smq.filer.store import Store
from smq.filer.upload import Naming, upload_buffer
from smq.model.references import HEADER, HEADER_VALUE, Reference
from smq.wire.records import Record, write_batch

CONTENT_TYPE = "text/plain"
HANDLE_HEADERS = ((HEADER.encode(), HEADER_VALUE),)


def reference_to(data: bytes, number: int = 0) -> Reference:
    """The reference that an upload of these bytes gets; `number` tells uploads apart."""
    return Reference.of(number, bytes(10), len(data), crc_of(data), CONTENT_TYPE)


def uploaded(store: Store, topic: str, data: bytes, number: int = 0) -> Reference:
    """Put a payload into a topic's space."""
    naming = Naming("kafka", topic, CONTENT_TYPE, number, bytes(10))
    return upload_buffer(store, naming, data)


def handle_batch(
    references: Sequence[Reference | bytes], *, offset: int = 0, time_ms: int = 0
) -> bytes:
    """A batch of a handle for each reference, and of a plain record for each value."""
    records = [
        Record(offset + i, time_ms, b"key", each.handle(), HANDLE_HEADERS)
        if isinstance(each, Reference)
        else Record(offset + i, time_ms, b"key", each)
        for i, each in enumerate(references)
    ]
    return write_batch(records)
