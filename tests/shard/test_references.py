"""Handles are acknowledged only if their payload is there, whole, young enough and the topic's."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.log.handles import AHEAD_MAX_MS
from shm.timings import Errors
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.model.references import Reference
from smq.shard.checks import ROOM_BYTES, Verdict
from smq.shard.references import (
    CHECK_MS_MAX,
    HANDLE_ROOM_BYTES,
    LATER_MAX,
    PATIENCE_MS,
    REASONS_MAX,
    REFUSED_MAX,
    BadHandleLimit,
    NoFiler,
    NotYetKnown,
    PayloadFacts,
    References,
)
from smq.testing.payloads import handle_batch, reference_to
from smq.wire.compression import Codec
from smq.wire.generated.produce import PartitionProduceResponse, ProduceResponse
from smq.wire.records import Record, write_batch
from tests.shard.shard_bench import (
    NOW,
    NOW_MS,
    Producer,
    new_shard,
    produce_request,
    responses,
    topic,
)

ORPHAN_MS = 1000
GOOD = reference_to(b"payload")


@dataclass
class FakePayloads:
    """A filer; `later` are keys it does not know of yet."""

    there: dict[str, PayloadFacts] = field(default_factory=dict)
    later: set[str] = field(default_factory=set)
    looks: int = 0

    def add(self, reference: Reference, name: str = "one", at_ms: int = NOW_MS) -> None:
        self.there[reference.key(name)] = PayloadFacts(reference.length, at_ms)

    def look(self, key: str) -> PayloadFacts | None:
        self.looks += 1
        if key in self.later:
            raise NotYetKnown
        return self.there.get(key)

    def directory(self, _prefix: str) -> bytes | None:
        return None  # Nothing here is a file.


class Files(FakePayloads):
    """A filer of files, as the shard sees it; a kernel may look at them if `is_shown`."""

    def __init__(self, root: Path, *, is_shown: bool = True) -> None:
        super().__init__()
        self.root, self._is_shown = root, is_shown

    def add(self, reference: Reference, name: str = "one", at_ms: int = NOW_MS) -> None:
        file = self.root / reference.key(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(reference.length))
        os.utime(file, ns=(at_ms * 1_000_000, at_ms * 1_000_000))

    def look(self, key: str) -> PayloadFacts | None:
        self.looks += 1
        try:
            found = (self.root / key).stat()
        except FileNotFoundError:
            return None
        return PayloadFacts(found.st_size, found.st_mtime_ns // 1_000_000)

    def directory(self, prefix: str) -> bytes | None:
        return f"{self.root}/{prefix}".encode() if self._is_shown else None


class Bench:
    """A shard with two topics, and a filer."""

    def __init__(
        self, directory: Path, logs: int = 1, payloads: FakePayloads | None = None
    ) -> None:
        configs = {"smq.reference.orphan.ms": str(ORPHAN_MS)}
        topics = topic("one", range(1, 3), configs), topic("two", range(3, 4))
        self.shard = new_shard(directory, *topics, logs=logs)
        self.payloads = payloads or FakePayloads()
        self.payloads.add(GOOD)
        references = References(self.payloads, self.shard.topic_of, self.shard.config)
        self.errors = Errors.private()
        self.producer = Producer(self.shard, references, errors=self.errors.table[0])

    def produce(self, *requests: bytes) -> list[ProduceResponse]:
        answers = self.producer.answers(b"".join(requests))
        return [response for _, response in responses(answers)]

    def send(self, batch: bytes, name: str = "one") -> PartitionProduceResponse:
        [response] = self.produce(produce_request({name: {0: batch}}))
        [answer] = response.responses[0].partition_responses
        return answer

    def refusal(self, *references: Reference | bytes) -> str:
        """Why a batch of these is refused; nothing of it is appended."""
        end = self.end()
        answer = self.send(handle_batch(references))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert self.end() == end
        assert answer.error_message
        return answer.error_message

    def end(self) -> int:
        return sum(led.offsets().log_end for led in self.shard.led())


def judged(references: References, batch: bytes) -> Verdict:
    """The verdict on a batch, whatever turns and jobs it takes."""
    check, said = references.check(1, np.frombuffer(batch, np.uint8), 0, NOW), None
    try:
        while True:
            job = check.send(said)
            references.room.begin_turn()
            said = NOW if job is None else job()
    except StopIteration as ended:
        verdict: Verdict = ended.value
        return verdict


@pytest.mark.parametrize(
    ("took_ms", "stepped_ms", "error"),
    [
        (0, 0, ErrorCode.NONE),
        (CHECK_MS_MAX - 1, 0, ErrorCode.NONE),
        (CHECK_MS_MAX, 0, ErrorCode.KAFKA_STORAGE_ERROR),
        (CHECK_MS_MAX, -CHECK_MS_MAX, ErrorCode.KAFKA_STORAGE_ERROR),
        (0, -1000, ErrorCode.NONE),
    ],
)
def test_a_check_that_took_long_is_to_be_done_again(
    tmp_path: Path, took_ms: int, stepped_ms: int, error: ErrorCode
) -> None:
    """Data fault 8: a sweep may have condemned and deleted what it looked at in the beginning.

    A wall clock that is set back meanwhile hides nothing.
    """
    bench = Bench(tmp_path)
    bench.payloads.add(GOOD, "two")
    references = References(bench.payloads, bench.shard.topic_of, bench.shard.config)
    batch = handle_batch([GOOD] * (ROOM_BYTES // HANDLE_ROOM_BYTES))
    check = references.check(3, np.frombuffer(batch, np.uint8), 0, NOW)
    assert next(check) is None, "it waits for room"
    references.room.begin_turn()
    with pytest.raises(StopIteration) as ended:
        check.send(Now(NOW.monotonic_ms + took_ms, NOW.wall_ms + took_ms + stepped_ms))
    assert ended.value.value.error == error


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_handle_to_what_is_there_is_appended(bench: Bench) -> None:
    answer = bench.send(handle_batch([b"plain", GOOD, GOOD]))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert bench.end() == 3


def test_a_batch_that_only_looks_like_one_is_appended_without_a_look(bench: Bench) -> None:
    assert bench.send(handle_batch([b"\x0esmq-ref"])).error_code == 0
    assert bench.payloads.looks == 0


def test_a_handle_to_nothing_is_refused_with_its_place(bench: Bench) -> None:
    other = reference_to(b"not there")
    answer = bench.send(handle_batch([GOOD, b"plain", other, other]))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    [first, second] = answer.record_errors
    assert (first.batch_index, second.batch_index) == (2, 3)
    assert first.batch_index_error_message == answer.error_message
    assert answer.error_message == f"topic one has no payload {other.id}: upload it first"
    assert bench.end() == 0


def test_a_payload_of_another_topic_is_none_of_this_one(bench: Bench) -> None:
    other = reference_to(b"the other's")
    bench.payloads.add(other, "two")
    assert "topic one has no payload" in bench.refusal(other)
    assert bench.send(handle_batch([other]), "two").error_code == 0


def test_a_payload_of_another_length_is_not_complete(bench: Bench) -> None:
    bench.payloads.there[GOOD.key("one")] = PayloadFacts(3, NOW_MS)
    assert "has 3 bytes: it is not complete" in bench.refusal(GOOD)


def test_a_payload_may_be_named_until_it_could_be_swept(bench: Bench) -> None:
    bench.payloads.add(GOOD, at_ms=NOW_MS - ORPHAN_MS + 1)
    assert bench.send(handle_batch([GOOD])).error_code == 0
    bench.payloads.add(GOOD, at_ms=NOW_MS - ORPHAN_MS)
    assert "was not uploaded within smq.reference.orphan.ms, 1000 ms" in bench.refusal(GOOD)


def test_a_payload_from_the_future_would_never_be_swept(bench: Bench) -> None:
    bench.payloads.add(GOOD, at_ms=NOW_MS + AHEAD_MAX_MS + 1)
    assert "was not uploaded within" in bench.refusal(GOOD)


def test_an_invalid_handle_is_refused(bench: Bench) -> None:
    record = Record(0, 0, None, b"../../etc/passwd", ((b"smq-ref", b"1"),))
    answer = bench.send(write_batch([record]))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.error_message == "a handle is JSON, and this is not"


def test_a_malformed_batch_that_may_hold_a_handle_is_refused(bench: Bench) -> None:
    import struct  # noqa: PLC0415

    from smq.wire import records  # noqa: PLC0415

    batch = bytearray(handle_batch([GOOD]))
    batch[61] ^= 0x40  # The record's length.
    batch[17:21] = struct.pack(">I", records.crc_of(bytes(batch)))
    answer = bench.send(bytes(batch))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.error_message == "its records are malformed, and it may hold a handle"


def test_a_producer_gets_a_storage_error_while_the_filer_is_asked(bench: Bench) -> None:
    bench.payloads.later.add(GOOD.key("one"))
    answer = bench.send(handle_batch([GOOD]))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "send it again" in (answer.error_message or "")
    bench.payloads.later.clear()
    assert bench.send(handle_batch([GOOD])).error_code == 0


def test_all_that_a_batch_names_is_looked_at_before_it_is_sent_again(bench: Bench) -> None:
    others = [reference_to(b"later", number) for number in range(20)]
    bench.payloads.later.update(each.key("one") for each in others)
    answer = bench.send(handle_batch([GOOD, *others]))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [each.batch_index for each in answer.record_errors] == [1]
    assert bench.payloads.looks == 21


def test_a_missing_payload_is_refused_even_beside_undecided_ones(bench: Bench) -> None:
    later, gone = reference_to(b"later"), reference_to(b"gone")
    bench.payloads.later.add(later.key("one"))
    assert f"no payload {gone.id}" in bench.refusal(later, gone, later)


def test_a_batch_may_not_ask_for_more_than_is_ever_known_together(bench: Bench) -> None:
    gone = [reference_to(b"later", number) for number in range(LATER_MAX + 1)]
    bench.payloads.later.update(each.key("one") for each in gone)
    references = References(bench.payloads, bench.shard.topic_of, bench.shard.config)
    [least, often, most] = [
        judged(references, handle_batch(each)) for each in (gone[:-1], gone[:1] * len(gone), gone)
    ]
    assert least.error == often.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert most.error == ErrorCode.INVALID_RECORD
    assert [each.reason for each in most.refused] == [
        f"its batch names more than {LATER_MAX} payloads: send fewer"
    ]


def test_a_bounded_number_of_bad_handles_is_named(bench: Bench) -> None:
    answer = bench.send(handle_batch([reference_to(b"gone", i) for i in range(3 * REASONS_MAX)]))
    assert len(answer.record_errors) == bench.payloads.looks == REASONS_MAX


def test_a_compressed_batch_is_appended_as_it_is(bench: Bench) -> None:
    record = Record(0, 0, None, b"whatever", ((b"smq-ref", b"1"),))
    assert bench.send(write_batch([record], compression=Codec.LZ4)).error_code == 0
    assert bench.payloads.looks == 0


def test_a_duplicate_batch_is_accepted_without_its_payload(bench: Bench) -> None:
    batch = write_batch(
        [Record(0, 0, None, GOOD.handle(), ((b"smq-ref", b"1"),))],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )
    assert bench.send(batch).base_offset == 0
    bench.payloads.there.clear()
    again = bench.send(batch)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert bench.end() == 1


@pytest.mark.parametrize("logs", [1, 2])
def test_the_other_batches_of_a_buffer_are_not_concerned(tmp_path: Path, logs: int) -> None:
    bench = Bench(tmp_path, logs)
    bad = handle_batch([reference_to(b"gone")])
    first = produce_request({"one": {0: handle_batch([b"a"]), 1: bad}, "two": {0: bad}})
    second = produce_request({"two": {0: handle_batch([b"b"])}}, correlation=2)
    answers = [
        (topic_answer.name, each.index, each.error_code, each.base_offset)
        for response in bench.produce(first, second)
        for topic_answer in response.responses
        for each in topic_answer.partition_responses
    ]
    refused = int(ErrorCode.INVALID_RECORD)
    assert answers == [
        ("one", 0, 0, 0),
        ("one", 1, refused, -1),
        ("two", 0, refused, -1),
        ("two", 0, 0, 0),
    ]
    assert bench.end() == 2


def test_without_acknowledgements_the_connection_is_closed(bench: Bench) -> None:
    request = produce_request({"one": {0: handle_batch([reference_to(b"gone")])}}, acks=0)
    data = np.frombuffer(bytearray(request), np.uint8)
    produced = bench.producer.producing.run(data, 0, len(data), bench.shard.directory, NOW)
    assert produced.close
    assert not produced.answers


def test_without_a_filer_every_handle_is_refused() -> None:
    with pytest.raises(StopIteration) as ended:
        next(NoFiler().check(1, np.empty(0, np.uint8), 0, NOW))
    assert ended.value.value.error == ErrorCode.INVALID_RECORD


def test_refused_handles_are_counted(bench: Bench) -> None:
    gone = reference_to(b"gone")
    for references, count in (([GOOD, gone, gone], 2), ([GOOD], 0), ([gone], 1)):
        request = produce_request({"one": {0: handle_batch(references)}})
        data = np.frombuffer(bytearray(request), np.uint8)
        produced = bench.producer.producing.run(data, 0, len(data), bench.shard.directory, NOW)
        assert produced.refused == count


def test_errors_are_counted_once_also_of_answers_in_words(bench: Bench) -> None:
    bad, good = handle_batch([reference_to(b"gone")]), handle_batch([GOOD])
    bench.produce(
        produce_request({"one": {0: bad, 1: good}, "none": {0: good}}),
        produce_request({"one": {0: good, 7: good}}),
    )
    bench.produce(produce_request({"one": {9: good}}))
    wanted = Errors.private()
    wanted.add(0, {ErrorCode.INVALID_RECORD: 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 3})
    assert (bench.errors.table == wanted.table).all()


def test_patience_is_for_so_many_a_second() -> None:
    patience = BadHandleLimit()
    assert not patience.ends(REFUSED_MAX, NOW_MS)
    assert not patience.ends(REFUSED_MAX, NOW_MS + PATIENCE_MS)
    assert patience.ends(1, NOW_MS + PATIENCE_MS + 1)
    assert not patience.ends(1, NOW_MS - 5)  # The clock was set back.


# --- what a kernel decides -----------------------------------------------------------------------


def test_where_handles_were_good_a_kernel_looks_from_then_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "shard", payloads=Files(tmp_path / "filer"))
    for _ in range(3):
        assert bench.send(handle_batch([GOOD])).error_code == 0
        assert bench.payloads.looks == 1
    bench.producer.producing.forget_rules()
    assert bench.send(handle_batch([GOOD])).error_code == 0
    assert bench.payloads.looks == 2


def test_a_handle_that_the_kernel_left_is_refused_with_a_reason(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "shard", payloads=Files(tmp_path / "filer"))
    bench.send(handle_batch([GOOD]))
    gone = reference_to(b"gone")
    assert bench.refusal(GOOD, gone) == f"topic one has no payload {gone.id}: upload it first"
    bench.payloads.add(gone, "two")
    assert bench.refusal(gone) == f"topic one has no payload {gone.id}: upload it first"
    assert bench.send(handle_batch([gone]), "two").error_code == 0


ONES = [reference_to(bytes(length), length) for length in range(4)]
AGES_MS = st.sampled_from([0, ORPHAN_MS - 1, ORPHAN_MS, -AHEAD_MAX_MS, -AHEAD_MAX_MS - 1])
SENT = st.lists(
    st.sampled_from([*ONES, b"plain", b"\x0esmq-ref", ONES[0].handle()]), min_size=1, max_size=4
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(ONES), AGES_MS),
        st.tuples(st.just("remove"), st.sampled_from(ONES), st.none()),
        st.tuples(st.just("cut"), st.sampled_from(ONES), st.none()),
        st.tuples(st.just("send"), SENT, st.sampled_from(["one", "two"])),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=30)
@given(STEPS)
def test_it_finds_good_what_is_found_good_without_it(steps: list[tuple[str, Any, Any]]) -> None:
    with TemporaryDirectory() as name:
        root = Path(name)
        pair = [
            Bench(root / f"shard {is_shown}", payloads=Files(root / "filer", is_shown=is_shown))
            for is_shown in (True, False)
        ]
        files = pair[0].payloads
        assert isinstance(files, Files)
        for do, what, how in steps:
            if do == "send":
                said, expected = (bench.send(handle_batch(what), how) for bench in pair)
                assert said == expected
                continue
            file = files.root / what.key("one")
            if do == "add":
                files.add(what, at_ms=NOW_MS - how)
            elif do == "remove":
                file.unlink(missing_ok=True)
            elif file.exists():
                file.write_bytes(b"x" * 9)
        assert pair[0].end() == pair[1].end()
        assert pair[0].payloads.looks <= pair[1].payloads.looks
