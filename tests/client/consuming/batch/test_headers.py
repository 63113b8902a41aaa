"""Many headers of a record: the same as their tuple, and made when they are used."""

import pickle
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from typing import Any

import numpy as np
import pytest

from smq.client.consuming.batch import headers as module
from smq.client.consuming.batch.chunk import Chunk, PollRoom, cut
from smq.client.consuming.batch.headers import HEADERS_AT_ONCE, Header, ManyHeaders
from smq.wire.records import Record, write_batch
from tests.client.batches import batches_of

SENT = [(b"h%d" % n, None if n % 3 else b"v" * (n % 5)) for n in range(HEADERS_AT_ONCE + 1)]
EXPECTED = tuple((name.decode(), value) for name, value in SENT)


def chunk_of(sent: Sequence[tuple[bytes, bytes | None]]) -> Chunk:
    """A record with one header, and one with these."""
    records = [Record(0, 0, None, b"v", ((b"other", b"1"),)), Record(1, 0, b"k", None, (*sent,))]
    ((chunk,), _) = cut(batches_of(write_batch(records)), PollRoom(1 << 20))
    return chunk


def headers_of(sent: Sequence[tuple[bytes, bytes | None]]) -> Sequence[Header]:
    """The headers of a record behind another's."""
    return [*chunk_of(sent).records()][1].headers


def test_few_headers_are_a_tuple() -> None:
    headers = headers_of(SENT[:-1])
    assert isinstance(headers, tuple)
    assert headers == EXPECTED[:-1]


def test_many_headers_are_as_their_tuple() -> None:
    headers = headers_of(SENT)
    assert isinstance(headers, ManyHeaders)
    assert headers == EXPECTED
    assert EXPECTED == headers  # noqa: SIM300  (both ways)
    assert hash(headers) == hash(EXPECTED)
    assert headers != EXPECTED[:-1]
    assert headers != [*EXPECTED]
    assert len(headers) == len(EXPECTED)
    assert (headers[0], headers[-1], headers[7]) == (EXPECTED[0], EXPECTED[-1], EXPECTED[7])
    assert headers[5:9] == EXPECTED[5:9]
    assert tuple(reversed(headers)) == EXPECTED[::-1]
    assert ("h5", None) in headers
    assert headers.index(EXPECTED[9]) == 9
    with pytest.raises(IndexError):
        headers[len(EXPECTED)]
    assert repr(headers) == "<1025 headers>"


def pickled(headers: Any) -> Any:
    return pickle.loads(pickle.dumps(headers))


@pytest.mark.parametrize("copied", [copy, deepcopy, pickled])
def test_many_headers_are_copied_and_pickled(copied: Callable[[Any], Any]) -> None:
    headers = headers_of(SENT)
    assert isinstance(copied(headers), ManyHeaders)
    assert copied(headers) == EXPECTED
    assert copied(headers[5:9]) == EXPECTED[5:9]


def test_many_headers_are_added_to_others() -> None:
    headers: Any = headers_of(SENT)
    one = (("h", b"1"),)
    assert headers + one == (*EXPECTED, *one)
    assert one + headers == (*one, *EXPECTED)
    assert headers + headers == EXPECTED * 2
    listed: list[Header] = [*one]
    listed += headers
    assert listed == [*one, *EXPECTED]


def test_many_headers_outlive_their_memory() -> None:
    chunk = chunk_of(SENT)
    memory = bytearray(chunk.memory.data)
    headers = ManyHeaders.copied(memoryview(memory), chunk.headers[:, 1:])
    memory[:] = bytes(len(memory))
    chunk.headers[:] = 0
    assert headers == EXPECTED


@pytest.mark.parametrize("last", [(b"", None), (b"", b""), (b"k", b""), (b"", b"v")])
def test_the_last_of_many_headers_is_whole(last: tuple[bytes, bytes | None]) -> None:
    assert headers_of([*SENT, last])[-1] == (last[0].decode(), last[1])


def test_many_headers_are_made_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = headers_of(SENT * 3)
    made = list[int]()

    def noted(view: memoryview, places: np.ndarray) -> tuple[Header, ...]:
        made.append(places.shape[1])
        return ("h", None), ("h", None)

    monkeypatch.setattr(module, "headers_at", noted)
    next(iter(headers))
    assert made == [HEADERS_AT_ONCE]
