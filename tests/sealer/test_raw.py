"""Raw segments: batches as they were sent, an index, and no cut or altered one accepted."""

import pytest

from shm.arrow import read_only
from shm.kernels.twin import records as plain
from smq.sealer.decode import Kind, cut
from smq.sealer.raw import NotRaw, RawSegment, RawWriter


def _batch(offset: int, timestamp: int) -> bytes:
    record = plain.PlainRecord(offset, timestamp, None, b"v", ((b"\xff", None),))
    return plain.batch([record], end_offset=offset + 3)


BATCHES = [_batch(0, 50), _batch(3, 20), _batch(6, 90)]


def _segment() -> bytes:
    writer = RawWriter()
    for data in (BATCHES[0] + BATCHES[1], BATCHES[2]):
        for piece in cut(data):
            writer.add(piece)
    assert writer.size == sum(map(len, BATCHES))
    return bytes(writer.finish(0, 9))


def test_batches_are_those_that_were_sent() -> None:
    segment = RawSegment(read_only(_segment()))
    assert bytes(segment.body) == b"".join(BATCHES)
    assert segment.index["base_offset"].tolist() == [0, 3, 6]
    assert (segment.base_offset, segment.end_offset) == (0, 9)
    assert segment.index["last_offset"].tolist() == [2, 5, 8]
    assert [bytes(segment.body[row["at"] : row["end"]]) for row in segment.index] == BATCHES


def test_markers_are_not_written_and_those_of_earlier_versions_are_not_read() -> None:
    marker = plain.batch([plain.PlainRecord(3, 0, None, b"v")], end_offset=4, attributes=0x30)
    data = BATCHES[0] + marker + BATCHES[2]
    written, before = RawWriter(), RawWriter()
    for piece in cut(data):
        written.add(piece)
        before.add(piece._replace(kind=Kind.RAW))
    merged = RawWriter()
    merged.add_segment(RawSegment(read_only(before.finish(0, 9))))
    merged.add_segment(RawSegment(read_only(before.finish(0, 9))))
    for writer, times in ((written, 1), (before, 1), (merged, 2)):
        segment = RawSegment(read_only(writer.finish(0, 9)))
        pieces, places = segment.batches()
        assert b"".join(pieces) == times * (BATCHES[0] + BATCHES[2])
        assert places["last_record"].tolist() == times * [2, 8]
        ends = [len(BATCHES[0]), len(BATCHES[0] + BATCHES[2])]
        assert places["end"].tolist()[:2] == ends


def test_a_time_is_found_exactly_to_the_record() -> None:
    """Use fault 8: the batch's first offset, and its largest time."""
    header = ((b"\xff", None),)
    times = [(10, 5), (11, 40), (12, 7), (13, 60), (14, 8)]
    rows = [plain.PlainRecord(offset, time, None, b"v", header) for offset, time in times]
    garbage = plain.batch([plain.PlainRecord(20, 90, None, None)], end_offset=21, inflated=b"?")
    writer = RawWriter()
    for piece in cut(plain.batch(rows, end_offset=15) + garbage):
        writer.add(piece)
    segment = RawSegment(read_only(writer.finish(10, 21)))
    found = [segment.find_time(time) for time in (0, 6, 41, 61, 91)]
    assert found == [(10, 5), (11, 40), (13, 60), (20, 90), None]
    assert segment.find_time(0, from_offset=12) == (12, 7)
    assert segment.find_time(60, from_offset=14) == (20, 90)
    assert segment.newest(0) == (20, 90)
    assert segment.newest(21) is None


def test_a_time_is_found_among_batches() -> None:
    segment = RawSegment(read_only(_segment()))
    assert segment.find_time(-1) == (0, 50)
    assert segment.find_time(50) == (0, 50)
    assert segment.find_time(51) == (6, 90)
    assert segment.find_time(91) is None
    assert segment.find_time(-1, from_offset=4) == (6, 90)
    assert segment.find_time(-1, from_offset=9) is None


def test_no_cut_is_taken_for_a_segment() -> None:
    data = _segment()
    for end in range(len(data)):
        with pytest.raises(NotRaw):
            RawSegment(read_only(data[:end]))


def test_no_altered_index_is_taken_for_a_segment() -> None:
    data = _segment()
    for byte in range(sum(map(len, BATCHES)), len(data)):
        altered = bytearray(data)
        altered[byte] ^= 16
        with pytest.raises(NotRaw):
            RawSegment(read_only(altered))
