"""Which offsets of which partitions a filter may let through.

DuckDB hands the filters of a scan on as an Arrow expression. Arrow can tell that an expression is
false wherever another is true, so offsets are halved until the first and the last are found that
may pass. Rows between them are filtered one by one: a bound that is too wide costs time alone.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from smq.sealer.years import TIME_MS_MAX, TIME_MS_MIN

Range = tuple[int, int]

PLACE = pa.schema(
    [("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us"))]
)
APART_MAX = 16  # Partitions: each takes some milliseconds. Of more, all are bounded alike.
ANY = -1  # Stands for all partitions.
FILES_MAX = 16  # Looking at once at n files takes time by the square of n.
_FORMAT, _NOWHERE = ds.ParquetFileFormat(), fs.LocalFileSystem()


def wanted_ranges(
    columns: pa.Schema, wanted: ds.Expression | None, ranges: Mapping[int, Range]
) -> dict[int, Range]:
    """The part of each partition's range [start, end) that a filter over these columns may keep.

    Leaves out partitions without such a part.
    """
    if wanted is None:
        return {each: range_ for each, range_ in ranges.items() if range_[0] < range_[1]}
    names = [each for each, (start, end) in ranges.items() if start < end]
    spans = [_within(each, *ranges[each]) for each in names]
    kept = {names[at]: ranges[names[at]] for at in sorted(_may_keep(columns, wanted, spans))}
    if len(kept) <= APART_MAX:
        return _narrowed(columns, wanted, kept)
    whole = min(start for start, _ in kept.values()), max(end for _, end in kept.values())
    (first, last) = _narrowed(columns, wanted, {ANY: whole})[ANY]
    both = {each: (max(first, start), min(last, end)) for each, (start, end) in kept.items()}
    return {each: (start, end) for each, (start, end) in both.items() if start < end}


def _narrowed(
    columns: pa.Schema, wanted: ds.Expression, ranges: Mapping[int, Range]
) -> dict[int, Range]:
    """Ranges of which something may be kept, without their ends of which nothing is."""
    starts = _starts(columns, wanted, ranges)
    ends = _ends(columns, wanted, {each: (starts[each], ranges[each][1]) for each in ranges})
    return {each: (starts[each], ends[each]) for each in ranges}


def _starts(
    columns: pa.Schema, wanted: ds.Expression, ranges: Mapping[int, Range]
) -> dict[int, int]:
    """The first offset that may be kept: none of those before it may."""
    low = {each: start for each, (start, _) in ranges.items()}  # Nothing before it is kept.
    high = {each: end for each, (_, end) in ranges.items()}  # Something before it is.
    while open_ := [each for each in ranges if high[each] - low[each] > 1]:
        middles = {each: (low[each] + high[each]) // 2 for each in open_}
        spans = [_within(each, ranges[each][0], middles[each]) for each in open_]
        kept = _may_keep(columns, wanted, spans)
        for at, each in enumerate(open_):
            (high if at in kept else low)[each] = middles[each]
    return low


def _ends(columns: pa.Schema, wanted: ds.Expression, ranges: Mapping[int, Range]) -> dict[int, int]:
    """The offset after the last one that may be kept."""
    low = {each: start for each, (start, _) in ranges.items()}  # Something from it on is kept.
    high = {each: end for each, (_, end) in ranges.items()}  # Nothing from it on is.
    while open_ := [each for each in ranges if high[each] - low[each] > 1]:
        middles = {each: (low[each] + high[each]) // 2 for each in open_}
        spans = [_within(each, middles[each], ranges[each][1]) for each in open_]
        kept = _may_keep(columns, wanted, spans)
        for at, each in enumerate(open_):
            (low if at in kept else high)[each] = middles[each]
    return high


def first_time_ms(
    columns: pa.Schema, wanted: ds.Expression | None, ranges: Mapping[int, Range]
) -> int | None:
    """The first time, in ms since 1970, of a record of these ranges that the filter may keep.

    None without such a bound, also where it may keep a record whose time is null.
    """
    if wanted is None or not ranges:
        return None
    time = ds.field("timestamp")
    starts, ends = zip(*ranges.values(), strict=True)
    names = ranges if len(ranges) <= APART_MAX else {ANY: (min(starts), max(ends))}
    places = [_within(each, *range_) for each, range_ in names.items()]
    if _may_keep(columns, wanted, [place & time.is_null() for place in places]):
        return None

    def may_be_before(time_ms: int) -> bool:
        bound = time < pa.scalar(time_ms * 1000, pa.timestamp("us"))
        return bool(_may_keep(columns, wanted, [place & bound for place in places]))

    low, high = TIME_MS_MIN, TIME_MS_MAX + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if may_be_before(middle) else (middle, high)
    return low if low > TIME_MS_MIN else None


def _within(partition: int, start: int, end: int) -> ds.Expression:
    offset = ds.field("offset")
    low, high = (pa.scalar(each, pa.int64()) for each in (start, end))
    place = (offset >= low) & (offset < high)
    if partition == ANY:
        return place
    return place & (ds.field("partition") == pa.scalar(partition, pa.int32()))


def _may_keep(
    columns: pa.Schema, wanted: ds.Expression, places: Sequence[ds.Expression]
) -> set[int]:
    """Which of these places may have rows that the filter keeps.

    They stand for files that a data set would look into. None is opened.
    """
    kept: set[int] = set()
    for first in range(0, len(places), FILES_MAX):
        files = [
            _FORMAT.make_fragment(str(at), _NOWHERE, partition_expression=places[at])
            for at in range(first, min(first + FILES_MAX, len(places)))
        ]
        found = ds.FileSystemDataset(files, columns, _FORMAT, _NOWHERE)
        kept |= {int(each.path) for each in found.get_fragments(wanted)}
    return kept
