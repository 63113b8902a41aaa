"""The times and dates that lake engines have as timestamps: those of the years 1 to 9999.

Python has no others, so pyiceberg and whatever reads rows into Python fail where they meet one. A
record's time may be any 64-bit number of milliseconds: `_ts_ms` keeps it, and `_ts` is null.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TIME_MS_MIN, TIME_MS_MAX = -62_135_596_800_000, 253_402_300_799_999
TIMESTAMP, TIME = pa.timestamp("us", tz="UTC"), pa.time64("us")
DAY_MS = 86_400_000
DAY_MIN, DAY_MAX = TIME_MS_MIN // DAY_MS, TIME_MS_MAX // DAY_MS


def timestamps(times_ms: np.ndarray) -> pa.Array:
    """Times as timestamps, null outside these years."""
    fits = (times_ms >= TIME_MS_MIN) & (times_ms <= TIME_MS_MAX)
    if fits.all():
        return pa.array(times_ms * 1000).view(TIMESTAMP)
    return pa.array(np.where(fits, times_ms, 0) * 1000, mask=~fits).view(TIMESTAMP)


def within_years(time_us: int) -> int:
    """The nearest time of these years, in microseconds."""
    return max(TIME_MS_MIN * 1000, min(time_us, TIME_MS_MAX * 1000 + 999))


def has_years(column: pa.ChunkedArray) -> bool:
    """Whether all timestamps and dates in a column, nested ones too, are of these years, and all
    times of one day."""
    if pa.types.is_struct(column.type):
        return all(map(has_years, column.flatten()))
    if pa.types.is_list(column.type):
        return has_years(pc.list_flatten(column))
    if pa.types.is_date32(column.type):
        days = pc.min_max(column.cast(pa.int32())).as_py().values()
        return all(each is None or DAY_MIN <= each <= DAY_MAX for each in days)
    if pa.types.is_time64(column.type):
        assert column.type == TIME, "microseconds"
        times = pc.min_max(column.cast(pa.int64())).as_py().values()
        return all(each is None or 0 <= each < DAY_MS * 1000 for each in times)
    if not pa.types.is_timestamp(column.type):
        return True
    assert column.type == TIMESTAMP, "microseconds"
    bounds = pc.min_max(column.cast(pa.int64())).as_py().values()
    return all(each is None or within_years(each) == each for each in bounds)
