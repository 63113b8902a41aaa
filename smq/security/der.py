"""DER (ITU-T X.690) as far as certificates need it. Performs no IO."""

from collections.abc import Iterator
from typing import NamedTuple

SEQUENCE = 0x30
_VERSION = 0xA0
VALIDITY, SUBJECT = 3, 4  # Places in `fields_of`: serial number, signature, issuer, validity, …


class UnreadableDer(ValueError):
    """These bytes are not what they should be."""


class Element(NamedTuple):
    """One element: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    whole: bytes


def elements(data: bytes) -> Iterator[Element]:
    """The elements that these bytes consist of. Raises UnreadableDer."""
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise UnreadableDer("an element is cut")
        start, tag, length = at, data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size])
            at += size
        if at + length > len(data):
            raise UnreadableDer("an element is cut")
        yield Element(tag, data[at : at + length], data[start : at + length])
        at += length


def first_of(data: bytes, tag: int) -> Element:
    """The first element of these bytes, of this tag. Raises UnreadableDer."""
    first = next(elements(data), None)
    if first is None or first.tag != tag:
        raise UnreadableDer(f"there is no element {tag}")
    return first


def fields_of(certificate: bytes) -> list[Element]:
    """The fields of a certificate from its serial number on. Raises UnreadableDer."""
    signed = first_of(first_of(certificate, SEQUENCE).content, SEQUENCE)
    fields = [*elements(signed.content)]
    return fields[1:] if fields and fields[0].tag == _VERSION else fields
