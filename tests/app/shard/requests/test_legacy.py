"""Clients of message formats 0 and 1 over real sockets: both directions, with newer clients."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shm.timings import Errors
from smq.model.client_quotas import CLIENT, PRODUCE, key_of
from smq.model.errors import ErrorCode
from smq.shard.markers import _append as append_marker
from smq.shard.quotas import ClientLimits
from smq.wire.codec import read_string
from smq.wire.compression import Codec
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.internal.reads import BatchFile
from smq.wire.legacy.records import OldMessage, read_messages, write_message
from smq.wire.markers import Marker
from smq.wire.records import Record, read_batches, write_batch
from tests.app.shard_client import ServerBench, benches, decoded, fetch, fetched, request, settle
from tests.shard.shard_bench import NOW, NOW_MS, batch, produce_request, topic
from tests.wire.legacy.test_records import changed, wrapped

Make = Callable[..., ServerBench]
MiB = 1024 * 1024
ALL = 1 << 30


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def asked(key: int, version: int, body: bytes, correlation: int = 7) -> bytes:
    """A request with its size."""
    frame = struct.pack(">hhi", key, version, correlation) + text("old") + body
    return len(frame).to_bytes(4) + frame


def produce(version: int, *sets: bytes, acks: int = -1, name: str = "one") -> bytes:
    """Message sets for the partitions 0, 1, … of a topic."""
    rows = b"".join(struct.pack(">ii", i, len(data)) + data for i, data in enumerate(sets))
    body = struct.pack(">hii", acks, 1000, 1) + text(name) + struct.pack(">i", len(sets)) + rows
    return asked(0, version, body)


def produced(frame: bytes, version: int) -> list[tuple[int, int, int]]:
    """Partition, error and offset of each row; the whole answer is read."""
    assert struct.unpack_from(">ii", frame) == (7, 1)
    _, at = read_string(frame, 8)
    [count] = struct.unpack_from(">i", frame, at)
    at, rows = at + 4, []
    for _ in range(count):
        rows.append(struct.unpack_from(">ihq", frame, at))
        at += 14 + 8 * (version >= 2)
    assert len(frame) == at + 4 * (version >= 1)
    return rows


def old_fetch(version: int, offset: int = 0, wait_ms: int = 0, limit: int = ALL) -> bytes:
    most = struct.pack(">i", ALL) if version >= 3 else b""
    body = struct.pack(">iii", -1, wait_ms, 1) + most + struct.pack(">i", 1) + text("one")
    return asked(1, version, body + struct.pack(">iiqi", 1, 0, offset, limit))


def old_fetched(frame: bytes, version: int) -> tuple[int, int, list[OldMessage]]:
    """Error, high watermark and messages."""
    at = 8 + 4 * (version >= 1)
    _, at = read_string(frame, at)
    partitions, index, error, high, size = struct.unpack_from(">iihqi", frame, at)
    assert (partitions, index) == (1, 0)
    assert len(frame) == at + 22 + size
    return error, high, list(read_messages(frame[at + 22 :], MiB))


def ask(bench: ServerBench, data: bytes) -> bytes:
    client = bench.client()
    client.send(data)
    [frame] = client.wait(1)
    return frame


def old(
    magic: int, number: int, key: bytes | None = b"k", value: bytes | None = b"v"
) -> OldMessage:
    return OldMessage(magic, number, NOW_MS + number if magic else -1, key, value)


def records(bench: ServerBench) -> list[Record]:
    found = fetched(ask(bench, fetch("one"))).records
    return [record for each in read_batches(found) for record in each.records()]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_new_consumer_reads_records_of_an_old_producer(
    make: Make, version: int, codec: Codec
) -> None:
    bench, magic = make(topic("one"), legacy_formats=True), int(version == 2)
    sent = [old(magic, 0), old(magic, 1, None), old(magic, 2, b"k", None)]
    data = wrapped(codec, sent) if codec else b"".join(map(write_message, sent))
    assert produced(ask(bench, produce(version, data)), version) == [(0, 0, 0)]
    assert produced(ask(bench, produce(version, data)), version) == [(0, 0, 3)]
    expected = [Record(i, each.timestamp_ms, each.key, each.value) for i, each in enumerate(sent)]
    assert records(bench)[:3] == expected
    [first, _] = read_batches(fetched(ask(bench, fetch("one"))).records)
    assert first.codec == codec


@pytest.mark.parametrize("version", range(4))
def test_an_old_consumer_reads_records_of_a_new_producer(make: Make, version: int) -> None:
    bench = make(topic("one"), legacy_formats=True)
    sent = [Record(i, NOW_MS + i, b"k", b"v%d" % i, ((b"h", b"lost"),)) for i in range(3)]
    for codec in Codec:
        ask(bench, produce_request({"one": {0: write_batch(sent, compression=codec)}}))
    error, high, found = old_fetched(ask(bench, old_fetch(version, offset=1)), version)
    magic = int(version >= 2)
    values = [b"v0", b"v1", b"v2"] * len(Codec)
    expected = [old(magic, i, b"k", value) for i, value in enumerate(values)]
    times = [NOW_MS + i % 3 if magic else -1 for i in range(len(values))]
    expected = [each._replace(timestamp_ms=t) for each, t in zip(expected, times, strict=True)]
    assert (error, high, found) == (0, len(values), expected[1:])


def test_a_poll_waits_for_records(make: Make) -> None:
    bench = make(topic("one"), legacy_formats=True)
    client = bench.client()
    client.send(old_fetch(2, wait_ms=60_000))
    bench.turn()
    client.pull()
    assert client.frames() == []
    ask(bench, produce_request({"one": {0: batch(b"a")}}))
    [frame] = client.wait(1)
    assert [each.value for each in old_fetched(frame, 2)[2]] == [b"a"]


def mark(bench: ServerBench) -> None:
    """Append a marker, which is seen with the next records."""
    led = bench.shard.by_number(1)
    assert led is not None
    assert (
        append_marker(bench.shard, led, Marker(7, 0, committed=True, coordinator_epoch=0), NOW) == 0
    )


@pytest.mark.parametrize("version", range(4))
def test_offsets_without_records_are_passed_over(make: Make, version: int) -> None:
    """Data fault 27: a marker before a batch that does not fit beside it."""
    bench = make(topic("one"), legacy_formats=True)
    ask(bench, produce_request({"one": {0: batch(b"a")}}))
    mark(bench)
    mark(bench)
    ask(bench, produce_request({"one": {0: batch(bytes(10_000))}}))
    for limit in (1, 100, ALL):
        for offset in (1, 2, 3):
            _, high, found = old_fetched(
                ask(bench, old_fetch(version, offset, limit=limit)), version
            )
            assert (high, [each.offset for each in found]) == (4, [3])


def test_a_poll_waits_behind_what_has_no_records(make: Make) -> None:
    """Data fault 27: an aborted transaction that is sealed alone, at the end of the log."""
    bench = make(topic("one"), legacy_formats=True)
    bench.shard.logs[0].sealing.advance(1, 8, NOW_MS)
    client = bench.client()
    client.send(old_fetch(2, 3, wait_ms=60_000))
    settle(bench, client)
    [(_, answered)] = bench.peers.asked
    answered(BatchFile("", 0, 0, 8))
    settle(bench, client)
    assert client.frames() == []
    ask(bench, produce_request({"one": {0: batch(b"a")}}))
    [frame] = client.wait(1)
    assert [each.offset for each in old_fetched(frame, 2)[2]] == [8]


def test_an_empty_log_and_a_wrong_offset(make: Make) -> None:
    bench = make(topic("one"), legacy_formats=True)
    assert old_fetched(ask(bench, old_fetch(0)), 0) == (0, 0, [])
    error, _, found = old_fetched(ask(bench, old_fetch(1, offset=5)), 1)
    assert (error, found) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])


def test_each_partition_has_its_error_and_the_others_are_appended(make: Make) -> None:
    bench = make(topic("one", range(1, 6)), legacy_formats=True)
    good = write_message(old(1, 0))
    broker_time = changed(good, 8)
    huge = wrapped(Codec.GZIP, [old(1, 0, value=bytes(5 * MiB))])
    client = bench.client()
    client.send(produce(2, good[:-1] + b"?", good, b"", broker_time, good))
    [frame] = client.wait(1)
    assert produced(frame, 2) == [
        (0, ErrorCode.CORRUPT_MESSAGE, -1),
        (1, 0, 0),
        (2, ErrorCode.CORRUPT_MESSAGE, -1),
        (3, ErrorCode.INVALID_TIMESTAMP, -1),
        (4, 0, 0),
    ]
    assert produced(ask(bench, produce(2, huge)), 2) == [(0, ErrorCode.MESSAGE_TOO_LARGE, -1)]
    assert produced(ask(bench, produce(1, good, name="none")), 1)[0][1] == 3
    wanted = Errors.private()
    once = ErrorCode.INVALID_TIMESTAMP, ErrorCode.MESSAGE_TOO_LARGE
    wanted.add(0, {ErrorCode.CORRUPT_MESSAGE: 2, **dict.fromkeys(once, 1), 3: 1})
    assert (bench.server._replies.answering.errors.table == wanted.table).all()


def test_acks_0_is_not_answered_and_an_error_there_ends_the_connection(make: Make) -> None:
    bench = make(topic("one"), legacy_formats=True)
    client = bench.client()
    client.send(produce(1, write_message(old(0, 0)), acks=0))
    client.send(request("ApiVersions", 0, ApiVersionsRequest()))
    assert len(client.wait(1)) == 1
    assert len(records(bench)) == 1
    client.send(produce(1, b"garbage", acks=0))
    client.wait_closed()


def test_a_large_produce_is_converted_in_steps_and_others_are_served_between(make: Make) -> None:
    bench = make(topic("one"), legacy_formats=True)
    client, other = bench.client(), bench.client()
    client.send(produce(1, b"".join(write_message(old(0, i)) for i in range(2000))))
    client.send(old_fetch(0, offset=1999))
    other.send(request("ApiVersions", 0, ApiVersionsRequest()))
    other.wait(1)
    client.pull()
    assert client.frames() == []
    first, second = client.wait(2)
    assert produced(first, 1) == [(0, 0, 0)]
    assert [each.offset for each in old_fetched(second, 0)[2]] == [1999]


def test_a_malformed_request_closes_its_connection(make: Make) -> None:
    bench = make(topic("one"), legacy_formats=True)
    for key, version in [(0, 1), (1, 0), (2, 0), (8, 1)]:
        client = bench.client()
        client.send(asked(key, version, b"\0\0"))
        client.wait_closed()
        assert client.frames() == []


def test_list_offsets_0_gives_one_offset(make: Make) -> None:
    bench = make(topic("one"), legacy_formats=True)
    ask(bench, produce_request({"one": {0: batch(b"a", b"b")}}))
    for time, found in [(-1, [2]), (-2, [0]), (NOW_MS + 1, [1]), (NOW_MS + 99, [])]:
        body = struct.pack(">ii", -1, 1) + text("one") + struct.pack(">iiqi", 1, 0, time, 5)
        frame = ask(bench, asked(2, 0, body))
        partitions, index, error, count, *offsets = struct.unpack(
            f">iihi{len(found)}q", frame[8 + 5 :]
        )
        assert (partitions, index, error, count, offsets) == (1, 0, 0, len(found), found)


def test_old_versions_are_advertised_only_when_they_are_served(make: Make) -> None:
    for is_on in (False, True):
        bench = make(topic("one"), legacy_formats=is_on)
        frame = ask(bench, request("ApiVersions", 0, ApiVersionsRequest()))
        rows = decoded("ApiVersions", 0, frame).api_keys
        first = {each.api_key: each.min_version for each in rows}
        wanted = (0, 0, 0, 0, 0) if is_on else (4, 1, 2, 1, 2)
        assert tuple(first[key] for key in (1, 2, 8, 9, 19)) == wanted


@pytest.mark.parametrize("data", [produce(2, write_message(old(1, 0))), old_fetch(3)])
def test_without_the_setting_old_versions_close_the_connection(make: Make, data: bytes) -> None:
    bench = make(topic("one"))
    client = bench.client()
    client.send(data)
    client.wait_closed()
    assert client.frames() == []


def test_an_old_request_for_the_coordinator_is_relayed_in_a_newer_version(make: Make) -> None:
    bench = make(topic("one"), legacy_formats=True)
    client = bench.client()
    client.send(asked(9, 0, text("g") + struct.pack(">i", 0)))
    bench.turn()
    [(relayed, answered)] = bench.peers.relayed
    assert relayed[:4] == struct.pack(">hh", 9, 1)
    answered(struct.pack(">ii", 7, 0))
    assert client.wait(1) == [struct.pack(">ii", 7, 0)]


@pytest.mark.parametrize("data", [write_message(OldMessage(0, 0, -1, None, b"x" * 1000)), b""])
def test_an_old_produce_request_is_charged_once_and_answered_with_its_throttle_time(
    make: Make, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    charged = list[int]()

    def noted(_: ClientLimits, byte_count: int, _now_ms: int) -> int:
        charged.append(byte_count)
        return 1

    monkeypatch.setattr(ClientLimits, "produced", noted)
    bench = make(topic("one"), legacy_formats=True)
    bench.shard.quotas.take({key_of({CLIENT: None}): {PRODUCE: "1e9"}})
    client = bench.client()
    one = produce(1, data)
    client.send(one * 8)
    told = [struct.unpack(">i", frame[-4:]) for frame in client.wait(8)]
    assert (told, charged) == ([(1,)] * 8, [len(one)] * 8)
