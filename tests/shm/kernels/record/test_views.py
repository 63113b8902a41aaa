"""Binary views: compiled and plain make the same sixteen bytes."""

import numpy as np
from hypothesis import given, settings, strategies as st

from shm.arrow import read_only
from shm.kernels.record.views import VIEW_BYTES, fill_views
from shm.kernels.twin import records as plain

_spans = st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 40)), max_size=20)


@settings(deadline=None)
@given(st.binary(min_size=100, max_size=100), _spans)
def test_views_are_those_of_the_twin(data: bytes, spans: list[tuple[int, int]]) -> None:
    ats, lengths = np.array(spans, np.int64).reshape(-1, 2).T.copy()
    views = np.full(len(spans) * VIEW_BYTES, 255, np.uint8)
    validity = np.zeros((len(spans) + 7) // 8, np.uint8)
    nulls = fill_views(read_only(data), ats, lengths, views, validity)
    assert views.tobytes() == b"".join(plain.view(data, at, length) for at, length in spans)
    valid = np.unpackbits(validity, bitorder="little")[: len(spans)].tolist()
    assert valid == [int(length >= 0) for _, length in spans]
    assert nulls == valid.count(0)
