"""A payload must match its name, however its bytes are cut."""

import pytest
from hypothesis import given, strategies as st

from smq.filer.content import crc_of
from smq.front.payloads import NotThePayload, Promise
from smq.model.references import NotAHandle
from smq.testing.payloads import reference_to


def comes(key: str, pieces: list[bytes]) -> None:
    promise = Promise(key)
    for piece in pieces:
        promise.take(piece)
    promise.check()


@given(st.lists(st.binary()))
def test_it_is_kept_however_the_bytes_are_cut(pieces: list[bytes]) -> None:
    comes(reference_to(b"".join(pieces)).key("t"), pieces)


@given(st.binary(), st.lists(st.binary()))
def test_other_bytes_break_it(data: bytes, pieces: list[bytes]) -> None:
    came = b"".join(pieces)
    if (len(came), crc_of(came)) != (len(data), crc_of(data)):
        with pytest.raises(NotThePayload):
            comes(reference_to(data).key("t"), pieces)


@given(st.text())
def test_only_a_payload_has_such_a_name(text: str) -> None:
    with pytest.raises(NotAHandle):
        Promise(f"payloads/{text}")
    with pytest.raises(NotAHandle):
        Promise(reference_to(b"x").key("t").removeprefix("payloads/"))
