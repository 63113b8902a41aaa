"""Protocols in a column round-trip."""

import pytest
from hypothesis import given, strategies as st

from smq.store.protocols import Protocols, packed, packed_json, unpacked

PROTOCOLS = st.lists(st.tuples(st.text(), st.binary())).map(tuple)


@given(PROTOCOLS)
def test_packed_protocols_are_unpacked(protocols: Protocols) -> None:
    assert unpacked(packed(protocols)) == protocols


def test_the_form_is_pinned_for_databases_are_full_of_it() -> None:
    column = b"\x00\x00\x00\x02\xc3\xa9\x00\x00\x00\x01\xff\x00\x00\x00\x01a\x00\x00\x00\x00"
    assert packed((("é", b"\xff"), ("a", b""))) == column
    assert packed(()) == b""


def test_the_form_of_earlier_versions_becomes_this_one() -> None:
    old = '[["\\u00e9", "00ff"], ["rr", ""]]'
    assert unpacked(packed_json(old)) == (("é", b"\x00\xff"), ("rr", b""))


@pytest.mark.parametrize("cut", range(1, 15))
def test_a_column_that_was_cut_is_never_taken_for_another_one(cut: int) -> None:
    column = packed((("range", b"\xff\x00"),))
    assert len(column) == 15
    with pytest.raises(ValueError, match="does not end"):
        unpacked(column[:cut])
