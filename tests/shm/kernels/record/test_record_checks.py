"""What a topic requires of each record: three voices say the same, without room for each record."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.arrow import read_only
from shm.kernels.record.record_checks import R_KEYLESS, R_LATE, check_records, new_refused
from shm.kernels.record.records import (
    B_BASE_OFFSET,
    B_BASE_TIMESTAMP,
    B_COUNT,
    B_FIELDS,
    B_LAST_OFFSET,
    B_RECORDS_END,
    new_columns,
)
from shm.kernels.twin import records as plain
from smq.testing.records import plain_records

VOICES = [pytest.param(False, id="compiled"), pytest.param(True, id="interpreted")]
BASE, PLACES = 1000, 3
Refused = tuple[list[int], list[int]]


def facts_of(payload: bytes, count: int, last_offset: int, base_timestamp: int) -> np.ndarray:
    facts = np.zeros((B_FIELDS, 1), np.int64)
    facts[B_BASE_OFFSET], facts[B_LAST_OFFSET], facts[B_COUNT] = BASE, last_offset, count
    facts[B_BASE_TIMESTAMP], facts[B_RECORDS_END] = base_timestamp, len(payload)
    return facts


def checked(
    payload: bytes, facts: np.ndarray, limits: plain.RecordLimits, *, interpreted: bool
) -> Refused | None:
    """The places of refused records; None: they are malformed."""
    refused, kernel = new_refused(PLACES), cast("Any", check_records)
    check = kernel.py_func if interpreted else kernel
    words = np.array(limits, np.int64)
    if not check(read_only(payload), facts, words, new_columns(1), refused):
        return None
    keyless, late = (refused[row, 1 : 1 + refused[row, 0]].tolist() for row in (R_KEYLESS, R_LATE))
    return keyless, late


@pytest.mark.parametrize("interpreted", VOICES)
@settings(deadline=None)
@given(st.data())
def test_records_are_checked_as_the_twin_checks_them(
    interpreted: bool, data: st.DataObject
) -> None:
    records = data.draw(plain_records(base_offset=BASE, base_timestamp=0))
    times = st.sampled_from([-(2**63), -1, 0, 2**63 - 1, *(each.timestamp for each in records)])
    limits = plain.RecordLimits(data.draw(st.booleans()), data.draw(times), data.draw(times))
    bodies = [plain.record_body(record, BASE, 0) for record in records]
    payload = b"".join(plain.varint(len(body)) + body for body in bodies)
    last = records[-1].offset if records else BASE
    facts = facts_of(payload, len(records), last, 0)
    keyless, late = plain.refused(records, limits)
    wanted = keyless[:PLACES], late[:PLACES]
    assert checked(payload, facts, limits, interpreted=interpreted) == wanted


@pytest.mark.parametrize("interpreted", VOICES)
@settings(deadline=None)
@given(
    payload=st.binary(max_size=60), count=st.integers(-1, 12), last=st.integers(BASE - 1, BASE + 20)
)
def test_garbage_is_malformed_for_the_twin_too(
    interpreted: bool, payload: bytes, count: int, last: int
) -> None:
    limits = plain.RecordLimits(needs_key=False, first_ms=-(2**63), last_ms=2**63 - 1)
    found = checked(payload, facts_of(payload, count, last, 0), limits, interpreted=interpreted)
    try:
        read = plain.records(payload, BASE, 0, count)
    except plain.MalformedRecord:
        read = None
    end = read[-1].offset if read else BASE - 1
    assert (found is not None) == (read is not None and end <= last)
