"""Batches and requests of every kind a client may think of, for the produce kernels."""

from hypothesis import strategies as st

from tests.oracle.batches import batch, changed, message_set
from tests.shm.kernels.rig import NOW_MS, SMALL, request_of

_NUMBERS = {
    "base_offset": st.sampled_from([-1, 1, 2**62]),
    "length": st.sampled_from([-1, 0, 13, 14, 48, 49, 60, 200]),
    "leader_epoch": st.sampled_from([-1, 0, 5]),
    "magic": st.sampled_from([-1, 0, 1, 3]),
    "crc": st.just(7),
    "attributes": st.integers(0, 127),
    "last_offset_delta": st.integers(-2, 3),
    "base_timestamp": st.sampled_from([-1, 0, NOW_MS - 1001, 2**63 - 1, -(2**63)]),
    "max_timestamp": st.sampled_from([-1, 0, NOW_MS + 501, 2**63 - 1]),
    "producer_id": st.sampled_from([-1, 0, 1, 2**40]),
    "producer_epoch": st.sampled_from([-1, 0, 1]),
    "base_sequence": st.sampled_from([-1, 0, 1, 2**31 - 1]),
    "record_count": st.integers(-1, 4),
}


@st.composite
def _good_batches(draw: st.DrawFn) -> bytes:
    values = draw(st.lists(st.one_of(st.none(), st.binary(max_size=200)), min_size=1, max_size=3))
    producer = (-1, -1, -1)
    if draw(st.booleans()):
        sequence = st.sampled_from([0, 1, 2, 3, 2**31 - 1])
        producer = (draw(st.integers(0, 2)), draw(st.integers(0, 1)), draw(sequence))
    return batch(
        *values,
        first_ms=NOW_MS - draw(st.integers(-2, 2)),
        compression=draw(st.sampled_from([0, 0, 0, 1, 4])),
        producer=producer,
    )


@st.composite
def _changed_batches(draw: st.DrawFn) -> bytes:
    good = draw(_good_batches())
    names = draw(st.lists(st.sampled_from(sorted(_NUMBERS)), max_size=2, unique=True))
    data = changed(good, **{name: draw(_NUMBERS[name]) for name in names})
    return data[: len(data) - draw(st.sampled_from([0, 0, 0, 0, 1, 30, 60, 70]))]


def batches() -> st.SearchStrategy[bytes]:
    """Good batches mostly; then changed and cut ones, tails, old messages and garbage."""
    one = st.one_of(_good_batches(), _good_batches(), _changed_batches())
    others = [
        st.binary(max_size=100),
        st.builds(bytes.__add__, one, st.binary(max_size=30)),
        st.builds(bytes.__add__, one, one),
        st.sampled_from([message_set(0), message_set(1), b""]),
    ]
    return st.one_of(one, one, one, *others)


_INDICES = st.sampled_from([0, 0, 1, 2, 3, 4, -1])
_NAMES = st.sampled_from(["a", "a", SMALL.name, "unknown", ""])
_TOPICS = st.tuples(
    _NAMES, st.lists(st.tuples(_INDICES, st.one_of(st.none(), batches(), batches())), max_size=4)
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A framed Produce request of any version."""
    topics = draw(st.lists(_TOPICS, max_size=3))
    return request_of(
        topics,
        draw(st.integers(3, 13)),
        acks=draw(st.sampled_from([-1, -1, -1, 1, 0, 5])),
        transactional_id=draw(st.sampled_from([None, None, "t"])),
        correlation_id=draw(st.integers(-(2**31), 2**31 - 1)),
    )
