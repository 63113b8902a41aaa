"""Lent batches: the bytes that were promised, from wherever they lie, whatever the socket takes."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.words import COUNTER_FETCHES_FROM_WAL
from smq.log.files.background import InlineBackground
from smq.log.reading import DamagedFrame
from smq.shard import loans as module
from smq.shard.led import Led
from smq.shard.loans import FileRange, LentBatches, Loan, Sendable
from smq.testing.disk import SlowDisk
from tests.log.logs import read_batch
from tests.shard.shard_bench import RING_BYTES, Appender, batch, new_shard, topic

SMALL, LARGE = b"s" * 100, b"l" * 20_000


class Sent:
    """What a socket has taken, a few bytes at a time."""

    def __init__(self) -> None:
        self.data = b""

    def take(self, lent: Sendable, size: int) -> bool:
        """Send at most so many bytes; True when all is sent."""
        offered = b"".join(lent.next_buffers())[:size]
        self.data += offered
        is_done = lent.advance(len(offered))
        if isinstance(lent, LentBatches):
            lent.invariants()
        return is_done


@pytest.fixture
def bench(tmp_path: Path) -> Appender:
    return Appender(new_shard(tmp_path, topic("one"), topic("other", range(2, 3))))


def lent(bench: Appender) -> tuple[LentBatches, bytes]:
    """All batches of topic `one`, and their bytes as they lie in the ring now."""
    led = bench.shard.by_number(1)
    assert isinstance(led, Led)
    found = led.log.find(1, 0, led.offsets().high_watermark, 1 << 30)
    assert found is not None
    data = b"".join(bytes(read_batch(led.log, *span)) for span in found.spans.tolist())
    return LentBatches(led.log, found.spans, found.total_bytes), data


def overtake(bench: Appender) -> None:
    """Let other records pass through the whole ring."""
    for _ in range(RING_BYTES // len(LARGE) + 2):
        bench.append("other", 0, batch(LARGE))


@pytest.mark.parametrize("values", [[SMALL] * 40, [LARGE] * 5, [LARGE, SMALL, LARGE]])
@pytest.mark.parametrize("overtaken", [False, True])
def test_the_bytes_are_the_batches_from_ring_and_wal_alike(
    bench: Appender, values: list[bytes], overtaken: bool
) -> None:
    for value in values:
        bench.append("one", 0, batch(value))
    part, expected = lent(bench)
    if overtaken:
        overtake(bench)
    sent = Sent()
    while not sent.take(part, 1 << 20):
        pass
    assert sent.data == expected
    assert part.length == len(expected)
    assert bench.shard.logs[0].words[COUNTER_FETCHES_FROM_WAL] == overtaken


@settings(deadline=None, max_examples=8)
@given(sizes=st.lists(st.integers(1, 30_000), min_size=60, max_size=60), at=st.integers(0, 20))
def test_any_cut_goes_on_where_it_was_also_when_the_ring_moves_on_meanwhile(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], at: int
) -> None:
    bench = Appender(
        new_shard(tmp_path_factory.mktemp("log"), topic("one"), topic("other", range(2, 3)))
    )
    for value in (LARGE, SMALL, SMALL, LARGE):
        bench.append("one", 0, batch(value))
    part, expected = lent(bench)
    sent = Sent()
    for i, size in enumerate([*sizes, 1 << 20, 1 << 20, 1 << 20]):
        if i == at:
            overtake(bench)
        if sent.take(part, size):
            break
    assert sent.data == expected


def test_a_held_segment_is_not_recycled_until_its_release(bench: Appender) -> None:
    bench.append("one", 0, batch(LARGE))
    part, expected = lent(bench)
    part.hold()
    part.hold()
    overtake(bench)
    log = bench.shard.logs[0]
    recycle(bench)
    sent = Sent()
    while not sent.take(part, 7000):
        pass
    assert sent.data == expected
    before = len(log.wal.segments)
    part.release()
    part.release()
    recycle(bench)
    assert len(log.wal.segments) < before


def recycle(bench: Appender) -> None:
    log = bench.shard.logs[0]
    for led in bench.shard.led():
        log.sealing.advance(led.number, led.offsets().log_end, 0)
    log.checkpoint()
    bench.end_turn()


def test_a_part_on_the_disk_is_loaded_and_not_kept_for_a_slow_socket(
    bench: Appender,
) -> None:
    bench.append("one", 0, batch(LARGE, LARGE))
    bench.append("one", 0, batch(LARGE))
    part, expected = lent(bench)
    overtake(bench)
    bench.shard.logs[0].wal._disk = SlowDisk()
    sent, loads = Sent(), 0
    while True:
        if not part.next_buffers():
            assert part.next_buffers() == []
            part.load(lambda: None)
            loads += 1
        is_done = sent.take(part, 15_000)
        part.hold()
        part.pause()
        if is_done:
            break
    assert sent.data == expected
    assert loads == -(-len(expected) // 15_000)
    part.release()
    log = bench.shard.logs[0]
    assert all(segment.pins == segment.loans == 0 for segment in log.wal.segments)


@pytest.mark.parametrize("values", [[LARGE], [LARGE] * 3, [SMALL] * 300])
def test_a_socket_that_takes_a_few_bytes_at_a_time_has_not_much_more_read(
    bench: Appender, monkeypatch: pytest.MonkeyPatch, values: list[bytes]
) -> None:
    monkeypatch.setattr(module, "RUN_BYTES_MIN", 1000)
    for value in values:
        bench.append("one", 0, batch(value))
    part, expected = lent(bench)
    overtake(bench)
    wal, read_bytes = bench.shard.logs[0].wal, 0
    read_cached = wal.read_cached

    def counted(position: int, length: int, out: np.ndarray | None) -> np.ndarray | None:
        nonlocal read_bytes
        read_bytes += length
        return read_cached(position, length, out)

    monkeypatch.setattr(wal, "read_cached", counted)
    sent = Sent()
    while not sent.take(part, 400):
        part.pause()
    assert sent.data == expected
    assert read_bytes < 8 * len(expected)


def test_a_loan_counts_once_and_only_while_it_is_held(bench: Appender) -> None:
    bench.append("one", 0, batch(LARGE))
    part, _ = lent(bench)
    [segment] = bench.shard.logs[0].wal.segments
    counts = []
    for step in (part.wait, part.hold, part.release, part.release, part.hold, part.release):
        step()
        counts.append(segment.loans)
    assert counts == [1, 1, 0, 0, 1, 0]


def test_a_loan_releases_all_its_parts_at_once_and_may_hold_them_again(
    bench: Appender, cache_file: Path
) -> None:
    bench.append("one", 0, batch(LARGE))
    part, _ = lent(bench)
    other = FileRange(str(cache_file), 6, 70, InlineBackground())
    [segment] = bench.shard.logs[0].wal.segments
    loan = Loan()
    for _ in range(2):
        loan.hold(part)
        loan.hold(other)
        assert (segment.loans, opened(cache_file)) == (1, 1)
        loan.wait(part)
        loan.wait(other)
        assert (segment.loans, opened(cache_file)) == (1, 0)
        loan.hold(other)
        loan.release()
        assert (segment.loans, opened(cache_file)) == (0, 0)


def test_a_loan_that_rests_ends_what_its_parts_have_opened_since(cache_file: Path) -> None:
    part = FileRange(str(cache_file), 6, 70, InlineBackground())
    loan = Loan()
    loan.hold(part)
    loan.rest()
    assert opened(cache_file) == 0
    part.next_buffers()
    assert opened(cache_file) == 1
    loan.end(part)
    assert opened(cache_file) == 0
    part.next_buffers()
    loan.release()
    assert opened(cache_file) == 1, "it is a part no more"
    part.release()


def test_a_recycled_segment_raises_damaged_frame(bench: Appender) -> None:
    bench.append("one", 0, batch(LARGE))
    part, _ = lent(bench)
    overtake(bench)
    recycle(bench)
    with pytest.raises(DamagedFrame):
        part.next_buffers()


@pytest.fixture
def cache_file(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.write_bytes(b"before" + b"batches" * 10 + b"after")
    return path


def test_a_range_of_a_file_outlives_the_file_s_name(cache_file: Path) -> None:
    part = FileRange(str(cache_file), 6, 70, InlineBackground())
    cache_file.unlink()
    sent = Sent()
    while not sent.take(part, 33):
        pass
    assert sent.data == b"batches" * 10
    part.release()
    part.release()


def opened(path: Path) -> int:
    """How many descriptors of a file are open."""
    links = Path("/proc/self/fd").iterdir()
    return sum(os.path.realpath(link).startswith(str(path)) for link in links)


def test_a_range_that_waits_keeps_no_file_open(cache_file: Path) -> None:
    waiting = [FileRange(str(cache_file), 6, 70, InlineBackground()) for _ in range(100)]
    for part in waiting:
        part.wait()
    assert opened(cache_file) == 0
    waiting[0].hold()
    waiting[1].hold()
    assert opened(cache_file) == 2
    cache_file.unlink()
    sent = Sent()
    while not sent.take(waiting[0], 33):
        pass
    assert sent.data == b"batches" * 10
    with pytest.raises(FileNotFoundError):
        waiting[2].hold()
    with pytest.raises(FileNotFoundError):
        waiting[3].next_buffers()
    for part in waiting:
        part.release()
    assert opened(cache_file) == 0


def test_a_range_is_not_of_another_file_that_has_come_to_its_name(cache_file: Path) -> None:
    """Data fault 9: while it waits nothing holds the file, and its name may come again."""
    part = FileRange(str(cache_file), 6, 70, InlineBackground())
    part.wait()
    cache_file.unlink()
    cache_file.write_bytes(b"before" + b"SECRETS" * 10 + b"after")
    for take in (part.hold, part.next_buffers):
        with pytest.raises(OSError, match="another one"):
            take()
    assert opened(cache_file) == 0
    part.release()


def test_a_file_shorter_than_it_should_be_is_an_error(cache_file: Path) -> None:
    part = FileRange(str(cache_file), 6, 700, InlineBackground())
    assert part.next_buffers() == []
    part.load(lambda: None)
    with pytest.raises(OSError, match="shorter"):
        part.next_buffers()
    part.release()


@pytest.mark.parametrize("values", [[SMALL] * 40, [LARGE, SMALL, LARGE]])
def test_answers_that_are_read_in_turns_take_the_memory_from_each_other(
    bench: Appender, values: list[bytes]
) -> None:
    for value in values:
        bench.append("one", 0, batch(value))
    one, expected = lent(bench)
    other, _ = lent(bench)
    overtake(bench)
    ours, theirs = Sent(), Sent()
    while not ours.take(one, 3001):
        theirs.take(other, 700)
    while not theirs.take(other, 700):
        pass
    assert ours.data == theirs.data == expected
