"""Parcels for tests: closed ones, whose rows are known."""

from collections.abc import Callable, Sequence

from smq.client.producing.delivery.parcel import Extras, Parcel
from smq.wire.records import Headers

OPENED_MS = 1_000_000


class NoWaiting:
    """Who resolves parcels in tests is the test itself."""

    def wait(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        if not condition():
            raise TimeoutError

    def poll(self) -> None:
        pass

    def enable_wakeups(self) -> None:
        pass


def open_parcel(topic: str = "t", deadline_ms: int = 10**9) -> Parcel:
    return Parcel(topic, NoWaiting(), OPENED_MS, deadline_ms, 0)


def add(  # noqa: PLR0913  (as Producer.send)
    parcel: Parcel,
    value: bytes | None,
    *,
    key: bytes | None = None,
    headers: Headers = (),
    timestamp_ms: int | None = None,
    partition: int | None = None,
) -> None:
    """What `Producer.send` does."""
    row = len(parcel.values)
    if headers or timestamp_ms is not None or partition is not None:
        parcel.extras[row] = Extras(headers, timestamp_ms, partition)
    if key is not None:
        parcel.keys[row] = key
    parcel.values.append(value)


def closed(
    rows: Sequence[tuple[bytes, int]],
    *,
    partition_count: int = 3,
    topic: str = "t",
    deadline_ms: int = 10**9,
) -> Parcel:
    """A parcel of values that name their partitions."""
    parcel = open_parcel(topic, deadline_ms)
    for value, partition in rows:
        add(parcel, value, partition=partition)
    parcel.close(partition_count, 0)
    return parcel
