"""Produce requests through parse, append and answer: against the plain twin and the codecs."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.frames import frame_bytes
from shm.kernels.base.words import (
    FLAG_CLOSED,
    FLAG_READ_ONLY,
    FLAG_TAIL,
    HEAD_END,
    HEAD_REQUEST_BYTES_MAX,
    HEAD_THROTTLE_MS,
    HEAD_WALL_MS,
    P_FLAGS,
    P_LOG_END,
    P_LOG_START,
    PLAN_ROWS_MAX,
    STOP_CLOSED,
    STOP_MALFORMED,
    STOP_NEED_MORE,
    STOP_OTHER_API,
    WORD_SPACE_END,
    WORD_TAIL,
)
from shm.kernels.log.append import append_rows
from shm.kernels.log.plan import new_plan
from shm.kernels.request.produce import parse_requests, produce
from shm.kernels.twin import produce as plain
from tests.oracle.batches import batch, changed, with_crc
from tests.shm.kernels.rig import (
    NOW_MS,
    REQUEST_BYTES_MAX,
    RING_BYTES,
    SMALL,
    TOPIC,
    Rig,
    read_answers,
    request_of,
    rows_of,
    twin,
    twin_stored,
)
from tests.shm.kernels.strategies import batches, requests

VERSIONS = list(plain.VERSIONS)
STOPS = {"need more": STOP_NEED_MORE, "other API": STOP_OTHER_API, "malformed": STOP_MALFORMED}


def chunks(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The pieces of some bytes, cut at these places."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return (data[a:b] for a, b in pairwise(places))


def send(rig: Rig, pieces: Iterator[bytes]) -> tuple[bytes, bytes, int]:
    """Receive piece after piece, as a connection does: (answers, bytes left over, last stop)."""
    answers, left, stop = b"", b"", STOP_NEED_MORE
    for piece in pieces:
        left += piece
        answered, taken, stop = rig.receive(left)
        answers, left = answers + answered, left[taken:]
        if rig.is_closed or stop != STOP_NEED_MORE:
            break
    return answers, left, stop


def compare_errors(rig: Rig, answered: list[list[list[plain.Row]]]) -> None:
    """The rig has counted the errors of the answers, and those of requests that want none."""
    codes = [row.error for topics in answered for rows in topics for row in rows if row.error]
    wanted = np.bincount(np.array(codes, np.int64) + 1, minlength=len(rig.errors))
    left = rig.errors - wanted
    assert (left >= 0).all()
    assert rig.is_closed or not left.any()


def compare(stream: bytes, cuts: list[int]) -> None:
    """The kernels say of a stream what the twin says, however it is cut, and store the same."""
    rig, broker = Rig(), twin()
    read, taken, why = plain.parse(stream, REQUEST_BYTES_MAX)
    answered = list(broker.answers(read, NOW_MS))
    answers, left, stop = send(rig, chunks(stream, cuts))
    responses = read_answers(answers, [request.version for request, _ in answered])
    assert [each for each, _ in responses] == [each.correlation_id for each, _ in answered]
    assert [rows_of(each) for _, each in responses] == [rows for _, rows in answered]
    compare_errors(rig, [rows_of(each) for _, each in responses])
    if not rig.is_closed:
        assert (left, stop) == (stream[taken:], STOPS[why])
        assert rig.stored() == twin_stored(broker)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_of_every_version_is_answered_as_the_codec_reads_it(version: int) -> None:
    rig = Rig()
    records = batch(b"one", b"two")
    stream = request_of([("a", [(0, records), (2, records), (3, records)])], version)
    answers, taken, stop = rig.receive(stream)
    ((correlation_id, response),) = read_answers(answers, [version])
    assert (correlation_id, taken, stop) == (1, len(stream), STOP_NEED_MORE)
    start = 0 if version >= 5 else -1
    assert rows_of(response) == [
        [
            plain.Row(0, 0, 0, -1, start),
            plain.Row(2, 0, 0, NOW_MS, start),
            plain.Row(3, plain.NOT_LEADER),
        ]
    ]
    topic = response.responses[0]
    assert (topic.topic_id == TOPIC.id) if version >= 13 else (topic.name == "a")
    assert response.throttle_time_ms == 0
    assert all(not each.record_errors for each in topic.partition_responses)
    assert all(each.error_message is None for each in topic.partition_responses)


@settings(deadline=None, max_examples=150)
@given(st.lists(requests(), max_size=5), st.lists(st.integers(0, 10_000), max_size=4))
def test_any_requests_however_cut_give_the_answers_of_the_twin(
    stream: list[bytes], cuts: list[int]
) -> None:
    compare(b"".join(stream), cuts)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(requests(), min_size=1, max_size=3).map(b"".join),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 100),
)
def test_requests_with_bytes_changed_and_the_end_cut_off_give_the_answers_of_the_twin(
    stream: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    garbled = bytearray(stream)
    for at, byte in changes:
        garbled[at % len(garbled)] = byte
    compare(bytes(garbled[: len(garbled) - cut]), [])


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=80), st.sampled_from(VERSIONS))
def test_garbage_behind_a_header_gives_the_answers_of_the_twin(body: bytes, version: int) -> None:
    header = bytes([0, 0, 0, version, 0, 0, 0, 9, 0xFF, 0xFF])
    size = len(header) + len(body)
    compare(size.to_bytes(4) + header + body, [])


def test_a_log_much_smaller_than_what_is_sent_drains_and_gives_the_same() -> None:
    rig, broker = Rig(requests_max=2, rows_max=3), twin()
    value = b"v" * 700
    rows: list[tuple[int, bytes | None]] = [(i % 3, batch(value)) for i in range(4)]
    stream = b"".join(request_of([("a", rows)], 3 + i % 11, correlation_id=i) for i in range(30))
    read, _, _ = plain.parse(stream, REQUEST_BYTES_MAX)
    answered = list(broker.answers(read, NOW_MS))
    answers, taken, _ = rig.receive(stream)
    assert taken == len(stream)
    responses = read_answers(answers, [request.version for request in read])
    assert [rows_of(each) for _, each in responses] == [rows for _, rows in answered]
    assert rig.stored() == twin_stored(broker)
    assert rig.drains >= len(stream) // RING_BYTES


def test_an_index_that_is_full_drains_and_gives_the_same() -> None:
    rig = Rig()
    capacity = rig.log.layout.index_capacity
    count = 2 * capacity + 3
    stream = b"".join(request_of([("a", [(0, batch(b""))])]) for _ in range(count))
    answers, _, _ = rig.receive(stream)
    offsets = [
        rows_of(response)[0][0].base_offset for _, response in read_answers(answers, [9] * count)
    ]
    assert offsets == list(range(count))
    assert len(rig.stored()[10]) == count


def error_of(records: bytes | None, version: int = 9, **how: Any) -> tuple[int, int]:
    """What a partition with log start 4 says of records: error and log start."""
    rig = Rig()
    rig.log.partitions[0, [P_LOG_START, P_LOG_END]] = 4
    answers, _, _ = rig.receive(request_of([("a", [(0, records)])], version, **how))
    row = rows_of(read_answers(answers, [version])[0][1])[0][0]
    assert (row.base_offset >= 0) == (row.error == 0)
    return row.error, row.log_start


GOOD = batch(b"a", b"b")
SHORT_MESSAGE = bytes(8) + (14).to_bytes(4) + bytes(14)


@pytest.mark.parametrize(
    ("records", "error", "log_start"),
    [
        pytest.param(None, 87, -1, id="null records"),
        pytest.param(b"", 87, -1, id="no records"),
        pytest.param(GOOD[:-3], 87, -1, id="cut in the records"),
        pytest.param(GOOD[:40], 87, -1, id="cut in the header"),
        pytest.param(GOOD[:10], 87, -1, id="cut before the magic"),
        pytest.param(changed(GOOD, length=len(GOOD)), 87, -1, id="a length beyond the end"),
        pytest.param(changed(GOOD, length=0), 2, -1, id="a length of 0"),
        pytest.param(changed(GOOD, length=-1), 2, -1, id="a negative length"),
        pytest.param(GOOD[:8] + (20).to_bytes(4) + GOOD[12:32], 2, -1, id="below the header"),
        pytest.param(SHORT_MESSAGE, 87, -1, id="magic 0"),
        pytest.param(changed(GOOD, magic=1), 87, -1, id="magic 1"),
        pytest.param(changed(GOOD, magic=3), 2, -1, id="magic 3"),
        pytest.param(changed(GOOD, magic=-1), 2, -1, id="magic -1"),
        pytest.param(changed(GOOD, crc=1), 2, -1, id="a wrong CRC"),
        pytest.param(GOOD + GOOD, 87, -1, id="two batches"),
        pytest.param(GOOD + changed(GOOD, magic=9)[:20], 2, -1, id="then one of magic 9"),
        pytest.param(GOOD + GOOD[:-1], 0, 4, id="then one that is cut"),
        pytest.param(GOOD + b"\0\0\0", 0, 4, id="then three bytes"),
        pytest.param(changed(GOOD, base_offset=-5), 87, 4, id="a negative base offset"),
        pytest.param(changed(GOOD, base_offset=77), 87, 4, id="a base offset"),
        pytest.param(changed(GOOD, record_count=3), 87, 4, id="a count too large"),
        pytest.param(changed(GOOD, record_count=1), 87, 4, id="a count too small"),
        pytest.param(changed(GOOD, record_count=0), 87, 4, id="a count of 0"),
        pytest.param(
            changed(GOOD, record_count=0, last_offset_delta=-1), 87, 4, id="a delta of -1"
        ),
        pytest.param(
            changed(GOOD, record_count=-(2**31), last_offset_delta=2**31 - 1), 87, 4, id="both wrap"
        ),
        pytest.param(changed(GOOD, record_count=9, last_offset_delta=8), 87, 4, id="more than fit"),
        pytest.param(changed(GOOD, attributes=5), -1, 4, id="codec 5"),
        pytest.param(changed(GOOD, attributes=7), -1, 4, id="codec 7"),
        pytest.param(changed(GOOD, attributes=32), 87, 4, id="a control batch"),
        pytest.param(changed(GOOD, attributes=48), 53, -1, id="a transactional control batch"),
        pytest.param(changed(GOOD, attributes=16), 53, -1, id="a transactional batch"),
        pytest.param(changed(GOOD, attributes=0xC0), 0, 4, id="attributes nobody knows"),
        pytest.param(changed(GOOD, producer_id=7, producer_epoch=0), 87, 4, id="no sequence"),
        pytest.param(changed(GOOD, base_sequence=3, producer_epoch=0), 0, 4, id="no producer"),
        pytest.param(changed(GOOD, producer_id=7, base_sequence=0), 0, 4, id="epoch -1"),
        pytest.param(changed(GOOD, leader_epoch=9), 0, 4, id="a leader epoch of its own"),
        pytest.param(batch(b"v" * 2000), 10, -1, id="too large for the topic"),
    ],
)
def test_a_batch_is_refused_as_apache_kafka_refuses_it(
    records: bytes | None, error: int, log_start: int
) -> None:
    assert error_of(records) == (error, log_start)


def test_a_transactional_batch_is_for_requests_with_a_transactional_id() -> None:
    records = changed(GOOD, attributes=16)
    assert error_of(records) == (plain.NOT_AUTHORIZED, -1)
    assert error_of(records, transactional_id="t") == (0, 4)
    assert error_of(GOOD, transactional_id="t") == (0, 4)


@pytest.mark.parametrize(("version", "error"), [(3, 76), (6, 76), (7, 0), (13, 0)])
def test_zstd_is_known_from_version_7_on(version: int, error: int) -> None:
    assert error_of(changed(GOOD, attributes=4), version)[0] == error


def test_a_batch_larger_than_a_segment_is_refused_though_its_topic_would_take_it() -> None:
    rig = Rig()
    answers, _, _ = rig.receive(request_of([("a", [(1, batch(b"v" * 5000))])]))
    assert rows_of(read_answers(answers, [9])[0][1])[0][0].error == plain.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("first_ms", "error"),
    [
        pytest.param(NOW_MS, 0, id="now"),
        pytest.param(NOW_MS - 1000, 0, id="as old as may be"),
        pytest.param(NOW_MS - 1001, 32, id="a millisecond older"),
        pytest.param(NOW_MS + 500, 0, id="as new as may be"),
        pytest.param(NOW_MS + 501, 32, id="a millisecond newer"),
        pytest.param(-1, 0, id="none"),
        pytest.param(2**63 - 1, 32, id="the largest"),
        pytest.param(-(2**63), 0, id="the smallest, which wraps in Kafka too"),
    ],
)
def test_timestamps_are_held_to_the_topics_limits(first_ms: int, error: int) -> None:
    records = changed(batch(), base_timestamp=first_ms, max_timestamp=first_ms)
    answers, _, _ = Rig().receive(request_of([(SMALL.name, [(0, records)])]))
    assert rows_of(read_answers(answers, [9])[0][1])[0][0].error == error


def test_a_partition_that_cannot_be_written_answers_with_a_storage_error() -> None:
    rig = Rig()
    rig.log.partitions[0, P_FLAGS] |= FLAG_READ_ONLY
    answers, _, _ = rig.receive(request_of([("a", [(0, GOOD)])]))
    assert rows_of(read_answers(answers, [9])[0][1]) == [[plain.Row(0, plain.STORAGE_ERROR)]]


def test_a_tail_answers_that_another_leads_and_leaves_the_answer_to_python() -> None:
    rig = Rig()
    rig.log.partitions[0, P_FLAGS] |= FLAG_TAIL | FLAG_READ_ONLY
    answers, _, _ = rig.receive(request_of([("a", [(0, GOOD)])]))
    assert rows_of(read_answers(answers, [9])[0][1]) == [[plain.Row(0, plain.NOT_LEADER)]]
    assert rig.log.words[WORD_TAIL] == 0


def test_a_row_of_a_closed_partition_stops_the_plan_until_it_is_open() -> None:
    rig = Rig()
    rig.log.partitions[0, P_FLAGS] |= FLAG_CLOSED
    data = np.frombuffer(request_of([("a", [(0, GOOD)])]), np.uint8).copy()
    rig.plan[HEAD_END], rig.plan[HEAD_REQUEST_BYTES_MAX] = len(data), REQUEST_BYTES_MAX
    rig.plan[HEAD_WALL_MS] = NOW_MS
    tables = rig.log.memory, rig.links, rig.producers
    assert produce(data, *tables, rig.directory, rig.plan, rig.out) == STOP_CLOSED
    assert rig.log.words[WORD_TAIL] == 0
    rig.log.partitions[0, P_FLAGS] &= ~FLAG_CLOSED
    assert append_rows(*tables, data, rig.plan) == 0
    assert rig.log.words[WORD_TAIL] == frame_bytes(len(GOOD))


def test_a_batch_beyond_the_space_is_refused_and_a_duplicate_is_acknowledged() -> None:
    rig = Rig()
    first = batch(b"first", producer=(1, 0, 0))
    rig.receive(request_of([("a", [(0, first)])]))
    tail = rig.log.words[WORD_TAIL]
    end = tail + int(frame_bytes(len(GOOD)))
    for space_end, error in ((tail, 56), (end - 1, 56), (end, 0)):
        rig.log.words[WORD_SPACE_END] = space_end
        answers, _, _ = rig.receive(request_of([("a", [(0, GOOD)])]))
        assert rows_of(read_answers(answers, [9])[0][1])[0][0].error == error
        answers, _, _ = rig.receive(request_of([("a", [(0, first)])]))
        assert rows_of(read_answers(answers, [9])[0][1])[0][0].error == 0
    assert rig.log.words[WORD_TAIL] == end


def test_the_answers_say_for_how_long_the_client_is_throttled() -> None:
    rig = Rig()
    rig.plan[HEAD_THROTTLE_MS] = 250
    for version in VERSIONS:
        answers, _, _ = rig.receive(request_of([("a", [(0, GOOD)])], version))
        ((_, response),) = read_answers(answers, [version])
        assert response.throttle_time_ms == 250


def test_a_time_bit_of_the_client_is_cleared_and_the_crc_is_right() -> None:
    rig = Rig()
    rig.receive(request_of([("a", [(0, changed(GOOD, attributes=8))])]))
    (stored,) = rig.stored()[10]
    assert plain.read_header(stored).attributes == 0
    assert stored == with_crc(stored)


def test_the_brokers_time_is_stamped_and_the_crc_is_right() -> None:
    rig = Rig()
    rig.receive(request_of([("a", [(2, GOOD)])]))
    (stored,) = rig.stored()[12]
    assert plain.read_header(stored).attributes == 8
    assert plain.read_header(stored).max_timestamp == NOW_MS
    assert stored == with_crc(stored)


def test_bytes_after_a_batch_are_not_stored() -> None:
    rig = Rig()
    rig.receive(request_of([("a", [(0, GOOD + b"tail")])]))
    (stored,) = rig.stored()[10]
    assert stored[16:] == GOOD[16:]


@pytest.mark.parametrize("acks", [-1, 1])
def test_acks_of_all_and_of_the_leader_are_answered_alike(acks: int) -> None:
    rig = Rig()
    answers, _, _ = rig.receive(request_of([("a", [(0, GOOD)])], acks=acks))
    assert rows_of(read_answers(answers, [9])[0][1]) == [[plain.Row(0, 0, 0, -1, 0)]]


@pytest.mark.parametrize("acks", [2, -2, 127, -(2**15)])
def test_other_acks_are_refused_and_nothing_is_appended(acks: int) -> None:
    rig = Rig()
    answers, _, _ = rig.receive(request_of([("a", [(0, GOOD)]), ("b", [(0, GOOD)])], acks=acks))
    rows = rows_of(read_answers(answers, [9])[0][1])
    assert rows == [[plain.Row(0, 21)], [plain.Row(0, 21)]]
    assert rig.stored()[10] == []


def test_acks_0_is_not_answered_and_an_error_there_ends_the_answers() -> None:
    rig = Rig()
    good, bad = [("a", [(0, GOOD)])], [("nowhere", [(0, GOOD)])]
    before = request_of(good, acks=0) + request_of(good, correlation_id=7)
    answers, _, _ = rig.receive(before + request_of(bad, acks=0) + request_of(good))
    ((correlation_id, response),) = read_answers(answers, [9])
    assert (correlation_id, rows_of(response)[0][0].base_offset) == (7, 2)
    assert rig.is_closed


def test_unknown_topics_ids_and_partitions_have_different_error_codes() -> None:
    rows: list[tuple[int, bytes | None]] = [(0, GOOD), (4, GOOD), (-1, GOOD)]
    for version, unknown in ((9, plain.UNKNOWN_TOPIC_OR_PARTITION), (13, plain.UNKNOWN_TOPIC_ID)):
        answers, _, _ = Rig().receive(request_of([("a", rows), ("b", rows[:1])], version))
        read = rows_of(read_answers(answers, [version])[0][1])
        assert [row.error for row in read[0]] == [0, 3, 3]
        assert [row.error for row in read[1]] == [unknown]


@pytest.mark.parametrize("name", ["", "a" * 300, "\u00e9-smalL", "A", "\0" * 15 + "\n"])
def test_a_name_that_is_almost_a_topic_is_none(name: str) -> None:
    answers, _, _ = Rig().receive(request_of([(name, [(0, GOOD)])]))
    assert rows_of(read_answers(answers, [9])[0][1]) == [[plain.Row(0, 3)]]


def test_a_partition_named_twice_is_appended_and_answered_twice() -> None:
    answers, _, _ = Rig().receive(request_of([("a", [(0, GOOD), (0, GOOD)])]))
    rows = rows_of(read_answers(answers, [9])[0][1])[0]
    assert [row.base_offset for row in rows] == [0, 2]


def test_no_topics_and_no_partitions_are_answered_with_none() -> None:
    answers, _, _ = Rig().receive(request_of([]) + request_of([("a", [])]))
    nothing, topic = (response for _, response in read_answers(answers, [9, 9]))
    assert rows_of(nothing) == []
    assert rows_of(topic) == [[]]


@pytest.mark.parametrize(
    ("head", "stop"),
    [
        pytest.param("00000007 0000", STOP_MALFORMED, id="shorter than a header"),
        pytest.param("80000000 0000", STOP_MALFORMED, id="a negative size"),
        pytest.param("7fffffff 0000", STOP_MALFORMED, id="larger than may be"),
        pytest.param("00000008 0001 0009 00000001", STOP_OTHER_API, id="Fetch"),
        pytest.param("00000008 0000 0002 00000001", STOP_OTHER_API, id="version 2"),
        pytest.param("00000008 0000 000e 00000001", STOP_OTHER_API, id="version 14"),
        pytest.param("00000008 0000 ffff 00000001", STOP_OTHER_API, id="version -1"),
        pytest.param("00000008 0000 0009 00000001", STOP_MALFORMED, id="only a header"),
        pytest.param("00000008 0000 0009 000000", STOP_NEED_MORE, id="a byte missing"),
        pytest.param("0000", STOP_NEED_MORE, id="half a size"),
    ],
)
def test_a_request_that_is_no_produce_ends_the_plan_after_those_before_it(
    head: str, stop: int
) -> None:
    before = request_of([("a", [(0, GOOD)])])
    answers, taken, why = Rig().receive(before + bytes.fromhex(head))
    assert (taken, why) == (len(before), stop)
    assert len(read_answers(answers, [9])) == 1


def test_bytes_behind_the_last_field_are_ignored() -> None:
    whole = request_of([("a", [(0, GOOD)])])
    longer = (len(whole) - 4 + 3).to_bytes(4) + whole[4:] + b"abc"
    answers, taken, _ = Rig().receive(longer)
    assert taken == len(longer)
    assert rows_of(read_answers(answers, [9])[0][1])[0][0].error == 0


def test_a_count_without_partitions_does_not_grow_the_plan() -> None:
    whole = bytearray(request_of([("a", [])], 3) + bytes(10_000))
    whole[:4] = (len(whole) - 4).to_bytes(4)
    at = whole.index(b"\0\1a") + 3
    whole[at : at + 4] = (9_999).to_bytes(4)
    rig = Rig()
    words = len(rig.plan)
    assert rig.receive(bytes(whole))[2] == STOP_MALFORMED
    assert len(rig.plan) == words


@pytest.mark.parametrize("extra", [0, 1])
def test_a_request_for_more_than_the_largest_plan_is_malformed(extra: int) -> None:
    head = request_of([], 9)[4:-2]
    topics = (PLAN_ROWS_MAX + extra) * b"\2a\1\0"  # Name, no partitions, no tags.
    body = head + uvarint(PLAN_ROWS_MAX + extra + 1) + topics + b"\0"
    data = np.frombuffer(len(body).to_bytes(4) + body, np.uint8).copy()
    plan = new_plan(1, PLAN_ROWS_MAX, PLAN_ROWS_MAX)
    plan[HEAD_END], plan[HEAD_REQUEST_BYTES_MAX] = len(data), len(data)
    stop = parse_requests(data, Rig().directory, plan)
    assert stop == (STOP_MALFORMED if extra else STOP_NEED_MORE)


def uvarint(value: int) -> bytes:
    low = value & 127
    return bytes([low | 128]) + uvarint(value >> 7) if value > 127 else bytes([low])


def test_the_level_of_an_append_is_the_highest_of_its_partitions() -> None:
    rig = Rig()
    rig.receive(request_of([("a", [(0, GOOD)])]))
    assert rig.level == 1
    rig.receive(request_of([("a", [(1, GOOD), (0, GOOD)])]))
    assert rig.level == 2


@settings(deadline=None, max_examples=150)
@given(st.lists(batches(), min_size=1, max_size=6))
def test_any_batches_are_taken_or_refused_as_the_twin_does(records: list[bytes]) -> None:
    stream = b"".join(
        request_of([("a", [(i % 3, each)]), (SMALL.name, [(0, each)])])
        for i, each in enumerate(records)
    )
    compare(stream, [])
