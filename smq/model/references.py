"""Pass by reference: the name of a payload, and the handle that refers to it in a record.

A payload is an object of the filer, uploaded before any record refers to it:

    payloads/<namespace>/<topic>/<id>

    id      <time, 12 hex digits><random, 20>-<length, 12>-<CRC-32C, 8>

Its id contains its length and CRC-32C, and an object appears only when it is whole. So a payload is
complete if it exists with the length in its name. Ids begin with the time of their creation in
milliseconds, so they sort by it.

A handle is a record with the header `smq-ref` = `1`, and this JSON object as its value:

    {"id": "…", "length": 104857600, "crc32c": "9f5c1e02", "content_type": "image/tiff"}

An id has no other characters, so a handle refers to nothing but a payload of its record's topic.
"""

import json
import re
from dataclasses import dataclass

from smq.model.catalog import NAMESPACE_DEFAULT

HEADER = "smq-ref"
HEADER_VALUE = b"1"  # Version of the handle's format.
PREFIX = "payloads/"
HANDLE_BYTES_MAX = 1024
CONTENT_TYPE_DEFAULT = "application/octet-stream"
CONTENT_TYPE_BYTES_MAX = 255
LENGTH_MAX = (1 << 48) - 1  # Twelve hex digits; S3 ends at 5 TB.
# After a payload was condemned, until no check of a handle goes by what it had learned before: a
# shard keeps the answer of a store for a minute, and gives up a check that takes another.
SETTLED_MS = 120_000
_ID = re.compile(r"[0-9a-f]{32}-([0-9a-f]{12})-([0-9a-f]{8})")
# The form that `handle` writes, read in one step: a shard's turn waits. Other JSON is valid too.
_AS_WRITTEN = re.compile(
    rb'\{"id":"([0-9a-f]{32}-([0-9a-f]{12})-([0-9a-f]{8}))","length":(0|[1-9][0-9]{0,14}),'
    rb'"crc32c":"([0-9a-f]{8})","content_type":"([ !#-\[\]-~]{1,255})"\}'
)
_FIELDS = {"id", "length", "crc32c", "content_type"}


class NotAHandle(ValueError):
    """These bytes are no handle. The message says why."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A payload's id and facts."""

    id: str
    length: int
    crc32c: int
    content_type: str = CONTENT_TYPE_DEFAULT

    @classmethod
    def of(
        cls, wall_ms: int, chance: bytes, length: int, crc32c: int, content_type: str
    ) -> "Reference":
        """The reference of a new payload; `chance` is ten random bytes. Raises ValueError."""
        assert len(chance) == 10
        if not 0 <= length <= LENGTH_MAX:
            raise ValueError(f"the payload has {length} bytes; the limit is {LENGTH_MAX}")
        payload_id = f"{wall_ms:012x}{chance.hex()}-{length:012x}-{crc32c:08x}"
        return cls(payload_id, length, crc32c, checked_content_type(content_type))

    def handle(self) -> bytes:
        """The value of a record that refers to the payload."""
        kind = self.content_type.replace("\\", "\\\\").replace('"', '\\"')  # Printable ASCII.
        said = f'"length":{self.length},"crc32c":"{self.crc32c:08x}","content_type":"{kind}"'
        return f'{{"id":"{self.id}",{said}}}'.encode()

    @classmethod
    def of_handle(cls, value: bytes | memoryview | None) -> "Reference":
        """Parse a handle. Raises NotAHandle."""
        if value is None or len(value) > HANDLE_BYTES_MAX:
            raise NotAHandle(f"a handle is JSON of at most {HANDLE_BYTES_MAX} bytes")
        written = _AS_WRITTEN.fullmatch(value)
        if written is not None:
            payload_id, size, crc, length_said, crc_said, kind = written.groups()
            if int(size, 16) == int(length_said) and crc == crc_said:
                return cls(payload_id.decode(), int(size, 16), int(crc, 16), kind.decode())
        return cls._of_json(value)

    @classmethod
    def _of_json(cls, value: bytes | memoryview) -> "Reference":
        try:
            fields = json.loads(bytes(value))
        except (ValueError, RecursionError):
            raise NotAHandle("a handle is JSON, and this is not") from None
        if not isinstance(fields, dict) or fields.keys() != _FIELDS:
            raise NotAHandle(f"a handle is an object with {', '.join(sorted(_FIELDS))}")
        length, crc32c = facts_of_id(fields["id"])
        if type(fields["length"]) is not int or fields["length"] != length:
            raise NotAHandle(f"its length is {fields['length']!r}, its id says {length}")
        if fields["crc32c"] != f"{crc32c:08x}":
            raise NotAHandle(f"its CRC-32C is {fields['crc32c']!r}, its id says {crc32c:08x}")
        try:
            content_type = checked_content_type(fields["content_type"])
        except ValueError as reason:
            raise NotAHandle(str(reason)) from None
        return cls(fields["id"], length, crc32c, content_type)

    def key(self, topic: str, namespace: str = NAMESPACE_DEFAULT) -> str:
        """The payload's key in the filer."""
        return directory_of(namespace, topic) + self.id


def directory_of(namespace: str, topic: str) -> str:
    """The prefix of a topic's payloads in the filer."""
    return f"{PREFIX}{namespace}/{topic}/"


def facts_of_id(payload_id: object) -> tuple[int, int]:
    """The length and CRC-32C in a payload's id. Raises NotAHandle."""
    found = _ID.fullmatch(payload_id) if isinstance(payload_id, str) else None
    if found is None:
        raise NotAHandle(f"{str(payload_id)[:80]!r} is not the id of a payload")
    return int(found[1], 16), int(found[2], 16)


def begun_ms(payload_id: str) -> int:
    """When this id was made, by its maker's clock."""
    return int(payload_id[:12], 16)


def checked_content_type(content_type: object) -> str:
    """The content type, if it is valid. Raises ValueError."""
    if (
        not isinstance(content_type, str)
        or not content_type.isascii()
        or not content_type.isprintable()
        or not 0 < len(content_type) <= CONTENT_TYPE_BYTES_MAX
    ):
        raise ValueError(
            f"content_type is {content_type!r}; it must be 1 to {CONTENT_TYPE_BYTES_MAX} printable "
            "ASCII characters"
        )
    return content_type
