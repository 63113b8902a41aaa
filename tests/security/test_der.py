"""DER is read element by element, and nothing but its own error comes of garbage."""

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from smq.security.der import SEQUENCE, Element, UnreadableDer, elements, fields_of, first_of


def test_elements_follow_each_other_with_short_and_long_lengths() -> None:
    short, long = b"\x02\x01\x07", b"\x04\x81\x80" + bytes(128)
    assert [*elements(short + long)] == [
        Element(2, b"\7", short),
        Element(4, bytes(128), long),
    ]


def test_the_first_element_must_have_its_tag() -> None:
    assert first_of(b"\x30\x01\x05rest", SEQUENCE).content == b"\5"
    with pytest.raises(UnreadableDer, match="no element 48"):
        first_of(b"\x31\x00", SEQUENCE)
    with pytest.raises(UnreadableDer, match="no element 48"):
        first_of(b"", SEQUENCE)


@given(st.binary(max_size=60))
def test_garbage_is_malformed_or_some_fields(data: bytes) -> None:
    for read in (fields_of, lambda data: [*elements(data)]):
        with suppress(UnreadableDer):
            assert all(isinstance(each, Element) for each in read(data))
