"""A member's protocols as the bytes of one column.

    protocol = name length: u32 BE | name: UTF-8 | metadata length: u32 BE | metadata

one after another. Existing databases contain this form: a new form needs a step in
`smq.store.migrations`, and this code stays for the step that made it.
"""

import json
import struct

Protocols = tuple[tuple[str, bytes], ...]

_LENGTH = struct.Struct(">I")


def packed(protocols: Protocols) -> bytes:
    """Encode the column."""
    pieces = []
    for name, metadata in protocols:
        for piece in (name.encode(), metadata):
            pieces += [_LENGTH.pack(len(piece)), piece]
    return b"".join(pieces)


def unpacked(column: bytes) -> Protocols:
    """Decode the column. Raises ValueError for what packed() never makes: a file from elsewhere
    may have it."""
    pieces, at = [], 0
    while at < len(column):
        begin = at + _LENGTH.size
        at = begin + int.from_bytes(column[at:begin])
        pieces.append(column[begin:at])
    if at != len(column) or len(pieces) % 2:
        raise ValueError("it does not end where the metadata of its last name ends")
    return tuple(
        (name.decode(), metadata) for name, metadata in zip(pieces[::2], pieces[1::2], strict=True)
    )


def packed_json(text: str) -> bytes:
    """Encode the column from its form in versions 1 and 2: JSON, metadata in hexadecimal."""
    return packed(tuple((name, bytes.fromhex(metadata)) for name, metadata in json.loads(text)))
