"""A kernel reads the handles that we write, and accepts only those of a payload's file."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.words import HEAD_RULES, HEAD_WALL_MS, ROW_AT, ROW_CODE
from shm.kernels.log.handles import (
    AHEAD_MAX_MS,
    PATH_BYTES,
    RULES_MAX,
    add_rule,
    forget_rules,
    handles_are_good,
    new_rules,
    read_handle,
)
from shm.kernels.log.plan import new_plan, row_at
from smq.filer.local import LocalStore
from smq.model.references import LENGTH_MAX, NotAHandle, Reference, directory_of
from smq.testing.payloads import HANDLE_HEADERS, handle_batch, reference_to, uploaded
from smq.wire.records import Record, write_batch

CODE, ORPHAN_MS, NOW_MS = 3 << 32 | 7, 1000, 1_700_000_000_000
PAYLOAD = b"payload"

REFERENCES = st.builds(
    Reference.of,
    st.integers(0, 2**48 - 1),
    st.binary(min_size=10, max_size=10),
    st.integers(0, LENGTH_MAX) | st.integers(0, 20),
    st.integers(0, 2**32 - 1),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=255),
)
# What is put in place of some bytes of a handle.
PARTS = st.sampled_from([b"", b"0", b"f", b"F", b"-", b'"', b"\\", b" ", b"}", b"/", b"..", b"\0"])


def plainly(value: bytes) -> tuple[int, int]:
    """The twin: a handle is plain if it reads as what would be written the same, unescaped."""
    try:
        reference = Reference.of_handle(value)
    except NotAHandle:
        return -1, -1
    is_plain = reference.handle() == value and b"\\" not in value
    return (value.index(reference.id.encode()), reference.length) if is_plain else (-1, -1)


@settings(deadline=None)
@given(REFERENCES, st.integers(0, 400), st.integers(0, 3), PARTS, st.integers(0, 9))
def test_it_reads_what_we_write_and_nothing_else(
    reference: Reference, at: int, size: int, part: bytes, before: int
) -> None:
    written = reference.handle()
    for value in (written, written[:at] + part + written[at + size :], written[:at]):
        data = np.frombuffer(bytes(before) + value, np.uint8)
        id_at, length = plainly(value)
        expected = (id_at + before * (id_at >= 0), length)
        assert read_handle(data, before, len(value)) == expected
        assert read_handle.py_func(data, before, len(value)) == expected  # type: ignore[attr-defined]


def test_no_value_is_no_handle() -> None:
    assert read_handle(np.zeros(1, np.uint8), 0, -1) == (-1, -1)


class Bench:
    """A partition's rule, and a filer of files whose times are now."""

    def __init__(self, root: Path) -> None:
        self.store = LocalStore(root)
        self.rules, self.paths = new_rules()
        self.good = self.upload(PAYLOAD)
        self.plan = new_plan(1, 1, 1)
        self.plan[HEAD_WALL_MS] = NOW_MS
        self.plan[HEAD_RULES : HEAD_RULES + 2] = self.rules.ctypes.data, len(self.rules)
        self.add()

    def add(self, code: int = CODE) -> None:
        directory = f"{self.store.root}/{directory_of('kafka', 'one')}".encode()
        add_rule(self.rules, self.paths, code, directory, ORPHAN_MS)

    def upload(self, data: bytes) -> Reference:
        reference = uploaded(self.store, "one", data)
        os.utime(self.file(reference), (NOW_MS / 1000, NOW_MS / 1000))
        return reference

    def file(self, reference: Reference) -> Path:
        return self.store.root / reference.key("one")

    def finds_good(self, batch: bytes, code: int = CODE) -> bool:
        data = np.frombuffer(b"before" + batch + b"behind", np.uint8)
        row = int(row_at(self.plan, 0))
        self.plan[row + ROW_AT], self.plan[row + ROW_CODE] = 6, code
        return bool(handles_are_good(self.plan, row, data, len(batch)))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_handles_to_what_is_there_are_good(bench: Bench) -> None:
    empty = bench.upload(b"")
    assert bench.finds_good(handle_batch([b"plain", bench.good, empty, bench.good]))
    assert bench.finds_good(handle_batch([b"\x0esmq-ref"]))


def test_one_that_is_not_there_is_not(bench: Bench) -> None:
    for other in (reference_to(b"gone"), b"plain"):
        batch = handle_batch([bench.good, other])
        assert bench.finds_good(batch) == (other == b"plain")
    bench.file(bench.good).unlink()
    assert not bench.finds_good(handle_batch([bench.good]))


def test_a_payload_of_another_length_is_not_good(bench: Bench) -> None:
    for data in (PAYLOAD[1:], PAYLOAD + b"more"):
        bench.file(bench.good).write_bytes(data)
        os.utime(bench.file(bench.good), (NOW_MS / 1000, NOW_MS / 1000))
        assert not bench.finds_good(handle_batch([bench.good]))


def test_a_payload_that_is_a_directory_is_not_good(bench: Bench) -> None:
    bench.file(bench.good).unlink()
    bench.file(bench.good).mkdir()
    length = bench.file(bench.good).stat().st_size
    as_long = Reference.of(0, bytes(10), length, 1, "a/b")
    bench.file(as_long).mkdir()
    os.utime(bench.file(as_long), (NOW_MS / 1000, NOW_MS / 1000))
    assert not bench.finds_good(handle_batch([as_long]))


@pytest.mark.parametrize(
    ("age_ms", "is_young"),
    [(ORPHAN_MS - 1, True), (ORPHAN_MS, False), (-AHEAD_MAX_MS, True), (-AHEAD_MAX_MS - 1, False)],
)
def test_it_is_young_for_as_long_as_the_rule_says(
    bench: Bench, age_ms: int, *, is_young: bool
) -> None:
    modified_ns = (NOW_MS - age_ms) * 1_000_000
    os.utime(bench.file(bench.good), ns=(modified_ns, modified_ns))
    assert bench.finds_good(handle_batch([bench.good])) == is_young


def test_partitions_without_a_rule_are_left(bench: Bench) -> None:
    batch = handle_batch([bench.good])
    assert not bench.finds_good(batch, CODE + 1)
    assert not bench.finds_good(batch, CODE + RULES_MAX)  # It would stand in the same place.
    bench.add(CODE + RULES_MAX)
    assert bench.finds_good(batch, CODE + RULES_MAX)
    assert not bench.finds_good(batch)
    forget_rules(bench.rules)
    assert not bench.finds_good(batch, CODE + RULES_MAX)
    bench.plan[HEAD_RULES] = 0
    assert not bench.finds_good(batch)


def test_a_path_that_is_too_long_or_none_makes_no_rule(bench: Bench) -> None:
    forget_rules(bench.rules)
    for directory in (b"/" * PATH_BYTES, b"/\0/"):
        add_rule(bench.rules, bench.paths, CODE, directory, ORPHAN_MS)
        assert not bench.finds_good(handle_batch([bench.good]))


def test_a_handle_in_an_unusual_form_is_left_to_python(bench: Bench) -> None:
    value = bench.good.handle()
    for headers in (HANDLE_HEADERS * 2, ((b"smq-ref", b"2"),)):
        assert not bench.finds_good(write_batch([Record(0, 0, None, value, headers)]))
    for other in (value.replace(b",", b", "), b"{}", None):
        assert not bench.finds_good(write_batch([Record(0, 0, None, other, HANDLE_HEADERS)]))
    cut = bytearray(handle_batch([bench.good]))
    cut[57:61] = (2).to_bytes(4)  # It says that it has one record more.
    assert not bench.finds_good(bytes(cut))
