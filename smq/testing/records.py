"""Hypothesis strategies for records with everything Kafka allows in them."""

from hypothesis import strategies as st

from shm.kernels.twin.records import PlainRecord, batch

INT64_MAX = 2**63 - 1
YEAR_2263_MS = 9_246_182_400_000  # Beyond what nanoseconds in an int64 can say.

_field = st.one_of(st.none(), st.binary(max_size=20))
_header_key = st.one_of(st.sampled_from([b"", b"twice", "\u00e9\U0001f600".encode()]))
_edge_times = st.sampled_from([-1, 0, 1, YEAR_2263_MS, INT64_MAX])


@st.composite
def plain_records(
    draw: st.DrawFn,
    *,
    base_offset: int,
    base_timestamp: int | None = None,
    header_keys: st.SearchStrategy[bytes] = _header_key,
) -> list[PlainRecord]:
    """At least one record; offsets grow from `base_offset`, with gaps.

    With `base_timestamp` all timestamps are within 64 bits of it.
    """
    times = st.one_of(_edge_times, st.integers(0, 2**45), st.integers(-(2**63), INT64_MAX))
    if base_timestamp is not None:
        low, high = base_timestamp - 2**63, base_timestamp + INT64_MAX
        times = times.filter(lambda time: low <= time <= high)
    headers = st.lists(st.tuples(header_keys, _field), max_size=3).map(tuple)
    offset, records = base_offset, list[PlainRecord]()
    for _ in range(draw(st.integers(1, 6))):
        offset += draw(st.sampled_from([0, 0, 0, 1, 100]))
        record = PlainRecord(offset, draw(times), draw(_field), draw(_field), draw(headers))
        records.append(record)
        offset += 1
    return records


@st.composite
def similar_records(draw: st.DrawFn, *, base_offset: int, most: int = 300) -> list[PlainRecord]:
    """Records as programs send them: mostly of one shape, now and then one that is different."""
    key_length, value_length = draw(st.sampled_from([-1, 0, 3])), draw(st.sampled_from([-1, 0, 70]))
    time, filler = draw(st.sampled_from([0, 5, 2**20, 2**45])), draw(st.binary(max_size=4))
    first = base_offset + draw(st.sampled_from([0, 0, 60, 8190]))
    key, value = (
        None if length < 0 else (filler * length)[:length].ljust(length, b"x")
        for length in (key_length, value_length)
    )
    record = PlainRecord(first, time, key, value)
    records = [record._replace(offset=first + i) for i in range(draw(st.integers(1, most)))]
    for row in draw(st.lists(st.integers(0, len(records) - 1), max_size=3)):
        change = {
            "timestamp": draw(st.sampled_from([time, time + 1])),
            "key": draw(_field),
            "value": draw(_field),
            "headers": draw(st.sampled_from([(), ((b"h", b"1"),)])),
        }
        name = draw(st.sampled_from(sorted(change)))
        records[row] = records[row]._replace(**{name: change[name]})  # type: ignore[arg-type]
    gap_at, gap = draw(st.integers(0, len(records))), draw(st.sampled_from([0, 1, 2**20]))
    moved = [each._replace(offset=each.offset + gap) for each in records[gap_at:]]
    return records[:gap_at] + moved


@st.composite
def plain_batches(draw: st.DrawFn) -> list[bytes]:
    """One to three consecutive batches, with gaps between and inside them."""
    batches, offset = list[bytes](), draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 3))):
        base_timestamp = draw(_edge_times)
        records = draw(plain_records(base_offset=offset, base_timestamp=base_timestamp))
        records[0] = records[0]._replace(timestamp=base_timestamp)
        offset = records[-1].offset + 1 + draw(st.sampled_from([0, 0, 3]))
        batches.append(batch(records, end_offset=offset))
    return batches
