"""Protobuf messages become rows, and garbage a reason."""

import pickle
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from spark_jobs.formats.framing import Misfit
from spark_jobs.formats.protobuf import Protobuf
from tests.spark_jobs.formats.messages import descriptors, message

FORM = Protobuf(descriptors(), "shop.Order")
DDL = (
    "struct<user:string,amount:double,large:decimal(20,0),note:string,at:timestamp,kind:string,"
    "tags:array<string>,counts:map<string,int>,first:struct<n:int>,lines:array<struct<n:int>>>"
)


def order() -> bytes:
    made: Any = message("shop.Order")(
        user="ann", amount=1.5, large=2**64 - 1, note="", kind=1, tags=["a"], counts={"c": 7},
        lines=[{"n": -1}, {"n": 2}],
    )  # fmt: skip
    made.at.FromDatetime(datetime(2013, 1, 2, 3, 4, 5, 6, UTC))
    return bytes(made.SerializeToString())


WHOLE = order()
ROW = {
    "user": "ann", "amount": 1.5, "large": 2**64 - 1, "note": "", "kind": "BIG", "tags": ["a"],
    "at": datetime(2013, 1, 2, 3, 4, 5, 6, UTC), "counts": [("c", 7)], "first": None,
    "lines": [{"n": -1}, {"n": 2}],
}  # fmt: skip


def test_a_value_is_a_row() -> None:
    form = pickle.loads(pickle.dumps(FORM))
    assert form.columns.simpleString() == DDL
    assert form.decode(WHOLE) == ROW
    framed = Protobuf(descriptors(), "shop.Order", is_framed=True)
    assert framed.decode(b"\0\0\0\0\1\0" + WHOLE) == ROW
    nothing = form.decode(b"")
    assert (nothing["user"], nothing["note"], nothing["first"]) == ("", None, None)
    assert form.decode(b"\x30\x09")["kind"] == "9"  # Of a newer version of the enum.


@pytest.mark.parametrize("value", [b"\x0a\xff", b"\x0a\x01\xff", b"abc", WHOLE[:-1]])
def test_a_value_that_cannot_be_parsed_raises_misfit(value: bytes) -> None:
    with pytest.raises(Misfit, match=r"not a shop\.Order"):
        FORM.decode(value)


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_garbage_is_a_misfit(value: bytes) -> None:
    with suppress(Misfit):
        assert set(FORM.decode(value)) == set(FORM.columns.fieldNames())


@pytest.mark.parametrize(
    ("files", "name", "said"),
    [
        (b"\xff", "shop.Order", "not a descriptor set"),
        (descriptors(), "shop.Nothing", "has no message shop.Nothing; it has .*shop.Order"),
        (descriptors(), "shop.Tree", "shop.Tree is recursive"),
        (descriptors(), "shop.Empty", "shop.Empty has no fields"),
    ],
)
def test_a_type_without_columns_is_refused(files: bytes, name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Protobuf(files, name)
