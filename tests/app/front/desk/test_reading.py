"""Records are found on a real broker, in both directions, within bounds, and further on."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from uuid import uuid4

import pytest
from hypothesis import given, strategies as st

from smq.app.front.desk import reading
from smq.app.front.desk.reading import contains, read, record
from smq.client.client import Client
from smq.client.names import TopicPartition
from smq.front.console.desk import (
    HEADERS_MAX,
    PREVIEW_BYTES,
    FoundRecords,
    PassedOver,
    Wanted,
)
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.smq_broker import SmqBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
COUNT, PARTITIONS = 300, 3


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        SmqBroker(tmp_path_factory.mktemp("reading")) as broker,
        broker.connect(transport="kafka") as client,
    ):
        client.create_topic("clicks", PARTITIONS)
        with client.producer() as producer:
            for n in range(COUNT):
                producer.send(
                    "clicks",
                    b"value %d" % n,
                    key=b"key-%d" % (n % 7),
                    headers=[("trace", b"t%d" % (n % 5))],
                    timestamp_ms=1000 + n,
                    partition=n % PARTITIONS,
                )
        yield client


class _TakenBackError(Exception):
    """Aborts a transaction."""


class Clock:
    """Moves on by itself with each look."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.now_s, self._step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self._step_s
        return self.now_s


def look(client: Client, step_s: float = 0.0, **fields: object) -> FoundRecords:
    return read(client, PARTITIONS, Wanted(topic="clicks", **fields), Clock(step_s))  # type: ignore[arg-type]


def numbers(found: FoundRecords) -> list[int]:
    return [int((each.value or b"").split()[1]) for each in found.records]


def everything(client: Client, step_s: float = 0.0, **fields: object) -> list[int]:
    """Go on to the end."""
    found = look(client, step_s, **fields)
    got, answers = numbers(found), 1
    while found.cursor:
        found = look(client, step_s, cursor=found.cursor, **fields)
        got += numbers(found)
        answers += 1
        assert answers < 1000
    return got


def test_the_newest_come_first_and_older_ones_after_them(client: Client) -> None:
    found = look(client, limit=10)
    assert numbers(found) == [*range(299, 289, -1)]
    assert numbers(look(client, limit=10, cursor=found.cursor)) == [*range(289, 279, -1)]
    assert everything(client, limit=70) == [*range(299, -1, -1)]


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([*range(150, 0, -1)], id="falling"),
        pytest.param([*[1000] * 30, *range(120)], id="ahead"),
        pytest.param([*range(100, 250), 0, 0], id="late"),
        pytest.param([each * 7919 % 151 for each in range(150)], id="mixed"),
        pytest.param([0] * 150, id="equal"),
    ],
)
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("text", ["", "pin"])
def test_timestamps_in_any_order_hide_no_record(
    client: Client, times: list[int], partitions: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those ahead of the clock, or of late events, may be of who wants to hide the others."""
    monkeypatch.setattr(reading, "WINDOW", 5)
    topic, names = uuid4().hex[:8], list[tuple[int, int]]()
    client.create_topic(topic, partitions)
    with client.producer() as producer:
        for n, time in enumerate(times):
            producer.send(topic, b"pin", partition=n % partitions, timestamp_ms=1000 + time)
    cursor: Mapping[int, int] = {}
    while cursor or not names:
        wanted = Wanted(topic=topic, text=text, limit=40, cursor=cursor)
        found = read(client, partitions, wanted, Clock())
        shown = [each.timestamp_ms for each in found.records]
        assert shown == sorted(shown, reverse=True)
        assert shown, "each answer goes on"
        names += [(each.partition, each.offset) for each in found.records]
        cursor = found.cursor
    assert sorted(names) == sorted((n % partitions, n // partitions) for n in range(len(times)))


def test_a_late_record_hides_no_partition(client: Client) -> None:
    topic = uuid4().hex[:8]
    client.create_topic(topic, 2)
    with client.producer() as producer:
        for n in range(100):
            producer.send(topic, b"", partition=n % 2, timestamp_ms=1000 + n)
        producer.send(topic, b"", partition=1, timestamp_ms=0)
    found = read(client, 2, Wanted(topic=topic, limit=20), Clock())
    assert {each.partition for each in found.records} == {0, 1}
    assert found.records[-1].timestamp_ms == 0


def test_from_a_place_on_each_record_comes_once(client: Client) -> None:
    assert sorted(everything(client, start="earliest", limit=70)) == [*range(300)]
    assert numbers(look(client, partition=1, start="90")) == [*range(271, 300, 3)]
    assert min(numbers(look(client, start="@1290", limit=500))) == 290
    assert sorted(everything(client, start="@1100", until="@1110")) == [*range(100, 110)]
    assert look(client, start="earliest", partition=0, limit=500).cursor == {}


@pytest.mark.parametrize("start", ["newest", "earliest"])
def test_a_search_finds_keys_headers_and_text(client: Client, start: str) -> None:
    assert sorted(everything(client, start=start, key="key-3")) == [*range(3, 300, 7)]
    assert sorted(everything(client, start=start, header="trace=t4")) == [*range(4, 300, 5)]
    assert len(everything(client, start=start, header="trace", limit=500)) == COUNT
    assert sorted(everything(client, start=start, text="value 29")) == [29, *range(290, 300)]
    assert everything(client, start=start, text="nothing like it") == []


@pytest.mark.parametrize("start", ["newest", "earliest"])
def test_a_search_within_the_smallest_bounds_comes_to_its_end(
    client: Client, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "RECORDS_MAX", 20)
    found = look(client, start=start, text="value 15")
    assert found.cursor
    assert found.looked <= 2 * 20
    assert sorted(everything(client, start=start, text="value 15")) == [15, *range(150, 160)]


def test_time_that_runs_out_ends_an_answer_but_not_a_search(client: Client) -> None:
    found = look(client, step_s=0.1, start="earliest", text="value 29")
    assert 0 < found.looked < COUNT
    assert sorted(everything(client, 0.1, start="earliest", text="value 29")) == [
        29,
        *range(290, 300),
    ]
    assert sorted(everything(client, 0.1, text="value 29")) == [29, *range(290, 300)]


def test_all_windows_of_an_answer_share_its_budget(client: Client) -> None:
    clock = Clock(0.1)
    found = read(client, PARTITIONS, Wanted(topic="clicks", text="nothing like it"), clock)
    assert found.cursor
    assert 0 < found.looked < COUNT
    assert clock.now_s < 2 * reading.SECONDS


def test_a_search_looks_at_the_first_headers_and_counts_them(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = uuid4().hex[:8]
    client.create_topic(topic, 1)
    headers = [("first", b"x" * 900), *[("h", None)] * (HEADERS_MAX - 1), ("last", b"")]
    with client.producer() as producer:
        for _ in range(20):
            producer.send(topic, b"", headers=headers)

    def search(**fields: object) -> FoundRecords:
        wanted = Wanted(topic=topic, start="earliest", **fields)  # type: ignore[arg-type]
        return read(client, 1, wanted, Clock())

    assert len(search(header="first").records) == 20
    last = search(header="last")
    assert (last.records, last.looked, last.cursor) == ([], 20, {})
    assert last.looked_bytes == 20 * (len("first") + 900 + HEADERS_MAX - 1)
    monkeypatch.setattr(reading, "LOOKED_BYTES_MAX", 5000)
    assert search(header="last").looked == 5, "five have that many bytes in their headers"
    assert len(search().records) == 5, "what is shown is kept, and counts"


def test_a_batch_that_inflates_too_far_is_passed_over_and_said(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = uuid4().hex[:8]
    client.create_topic(topic, 1)
    with client.producer(compression="zstd") as producer:
        for value in (b"a", bytes(100_000), b"b"):
            producer.send(topic, value).result()
    monkeypatch.setitem(reading._CONSUMER, "inflated_bytes_max", 10_000)
    for start, values in (("earliest", [b"a", b"b"]), ("newest", [b"b", b"a"])):
        for text in ("", "nothing like it"):
            found = read(client, 1, Wanted(topic=topic, start=start, text=text), Clock())
            assert [each.value for each in found.records] == ([] if text else values)
            assert list(found.beyond) == [PassedOver(0, 1, 2)]
            assert found.cursor == {}
    until = read(client, 1, Wanted(topic=topic, start="earliest", until="1"), Clock())
    assert not until.beyond, "it is not in what was asked for"
    with pytest.raises(BrokerError, match="inflates to more than 10000 bytes") as refusal:
        record(client, TopicPartition(topic, 0), 1)
    assert refusal.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert record(client, TopicPartition(topic, 0), 2) is not None


def test_a_search_from_the_end_leaves_a_batch_that_inflates_too_far_at_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = uuid4().hex[:8]
    client.create_topic(topic, 1)
    with client.producer(compression="zstd", linger_ms=60_000, batch_bytes=1 << 18) as producer:
        producer.send(topic, b"a")
        producer.flush()
        for _ in range(100):
            producer.send(topic, bytes(1000))
    monkeypatch.setitem(reading._CONSUMER, "inflated_bytes_max", 10_000)
    monkeypatch.setattr(reading, "LOOKED_BYTES_MAX", 4 * reading.INFLATED_BYTES_MAX)
    found = read(client, 1, Wanted(topic=topic, limit=2), Clock())
    assert [each.value for each in found.records] == [b"a"]
    assert sum(each.end - each.base for each in found.beyond) == 100


def test_a_record_is_whole_or_is_not_there(client: Client) -> None:
    found = record(client, TopicPartition("clicks", 1), 5)
    assert found is not None
    assert (found.value, found.key, found.headers) == (b"value 16", b"key-2", (("trace", b"t1"),))
    assert record(client, TopicPartition("clicks", 1), 100) is None


@pytest.mark.parametrize(
    ("headers", "is_cut"),
    [
        ([("h", b"x" * PREVIEW_BYTES)] * HEADERS_MAX, False),
        ([("h", b"")] * (HEADERS_MAX + 1), True),
        ([("h", b"x" * (PREVIEW_BYTES + 1))], True),
        ([("h" * (PREVIEW_BYTES + 1), None)], True),
    ],
)
def test_headers_say_whether_they_are_cut(
    client: Client, headers: list[tuple[str, bytes | None]], is_cut: bool
) -> None:
    """Awkward records."""
    topic = uuid4().hex[:8]
    client.create_topic(topic, 1)
    with client.producer() as producer:
        producer.send(topic, b"", headers=headers)
    found = record(client, TopicPartition(topic, 0), 0)
    assert found is not None
    assert found.are_headers_cut == is_cut


def of_topic(client: Client, topic: str, start: str) -> list[bytes | None]:
    """The values of a topic of one partition, asked for two at a time."""
    wanted = Wanted(topic=topic, start=start, limit=2)
    found = read(client, 1, wanted, Clock())
    values = [each.value for each in found.records]
    while found.cursor:
        wanted = Wanted(topic=topic, start=start, limit=2, cursor=found.cursor)
        found = read(client, 1, wanted, Clock())
        values += [each.value for each in found.records]
        assert len(values) <= 10
    return values


def test_only_records_of_committed_transactions_are_shown(client: Client) -> None:
    client.create_topic("paid", 1)
    with client.producer(transactional_id="till") as producer:
        for name, is_kept in (("a", True), ("b", False), ("c", True), ("d", False)):
            with suppress(_TakenBackError), producer.transaction():
                for part in (1, 2):
                    producer.send("paid", f"{name}{part}".encode())
                producer.flush()
                if not is_kept:
                    raise _TakenBackError
        kept = [b"a1", b"a2", b"c1", b"c2"]
        assert of_topic(client, "paid", "earliest") == kept
        assert of_topic(client, "paid", "newest") == kept[::-1]
        assert record(client, TopicPartition("paid", 0), 1) is not None
        assert record(client, TopicPartition("paid", 0), 3) is None, "it was aborted"
        with producer.transaction():
            producer.send("paid", b"e1")
            producer.flush()
            assert of_topic(client, "paid", "earliest") == kept, "nobody knows yet how it ends"
            assert of_topic(client, "paid", "newest") == kept[::-1]
        assert of_topic(client, "paid", "earliest") == [*kept, b"e1"]


SOME = st.lists(st.sampled_from(b"ab")).map(bytes)


@given(SOME, SOME, st.integers(1, 9))
def test_bytes_are_found_in_pieces_as_in_the_whole(data: bytes, part: bytes, piece: int) -> None:
    """Python looked into 16 MiB for 400 ms, while no request of the front was answered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PIECE_BYTES", piece)
        assert contains(data, part) == (part in data)
        assert contains(memoryview(data), part) == (part in data)


def test_absent_bytes_contain_only_the_empty_part() -> None:
    assert contains(None, b"")
    assert not contains(None, b"a")


def test_an_invalid_partition_or_place_raises_value_error(client: Client) -> None:
    with pytest.raises(ValueError, match="no partition 3"):
        look(client, partition=3)
    with pytest.raises(ValueError, match="choose one"):
        read(client, 65, Wanted(topic="clicks"), Clock())
    with pytest.raises(ValueError, match="a place is"):
        look(client, start="somewhere")
