"""The sealer as a process with workers: rounds, cold reads, deaths, and leaving when idle."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import pytest

from smq.app.process.clock import monotonic_ms, wall_ms
from smq.app.process.inheritance import SEALER
from smq.app.process.link import Link
from smq.app.sealer import main
from smq.app.sealer.claims import Claim
from smq.app.sealer.main import Sealer, empty
from smq.app.sealer.worker import Worker
from smq.app.sealer.workers import JobTimeouts
from smq.filer.location import Location
from smq.filer.store import Store
from smq.log.files.disk import read_now
from smq.testing.faulty_store import Slow
from smq.testing.payloads import handle_batch, reference_to, uploaded
from smq.wire.internal.form import Failed, Question, decode_answer, encode_question
from smq.wire.internal.frames import InternalFrame
from smq.wire.internal.messages import FindPayloads, Partitions, Pressure, Unsealed
from smq.wire.internal.reads import BatchFile, Cold, Inline, OffsetForTime, RecordTime
from smq.wire.records import read_batches
from tests.app.fake_peers import TidyLoop, turn_until
from tests.app.fake_sealed_broker import NUMBER, FakeSealedBroker
from tests.sealer.sealed import PLACE, batch

HOUR_MS = 3_600_000
A = TypeVar("A")


@pytest.fixture
def loop() -> Iterator[TidyLoop]:
    loop = TidyLoop()
    yield loop
    loop.close()


class HangsOnReading:
    """A filer, in place of the first reading worker's, that hangs while a file is there."""

    def __init__(self, directory: Path) -> None:
        self.sign, self._reached = directory / "hang", directory / "reached"

    def store(self, worker: Worker) -> Store:
        store = worker._at.filer.open()
        return Slow(store, self._wait) if worker._at.cache_dir.name == "cold" else store

    def has_been_met(self) -> bool:
        return self._reached.exists()

    def _wait(self) -> None:
        if self.sign.exists():
            self._reached.touch()
            Event().wait()


@pytest.fixture
def start(loop: TidyLoop, tmp_path: Path) -> Iterator[Any]:
    """Start a sealer among fakes: start(batches, **settings) -> (broker, sealer)."""
    started: list[tuple[FakeSealedBroker, Sealer]] = []

    def begin(batches: list[bytes], **settings: object) -> tuple[FakeSealedBroker, Sealer]:
        broker = FakeSealedBroker(loop, tmp_path, batches, **settings)
        sealer = Sealer(loop, broker.inheritance)
        started.append((broker, sealer))
        sealer.listen(broker.inheritance.unix_listeners[SEALER])
        sealer.round()
        return broker, sealer

    yield begin
    for broker, sealer in started:
        sealer.stop()
        broker.close()


def _ask(loop: TidyLoop, broker: FakeSealedBroker, question: Question[A]) -> A | Failed:
    answers: list[A | Failed] = []

    def answered(_link: Link, frame: InternalFrame) -> None:
        answers.append(decode_answer(type(question), frame.body))

    path = broker.inheritance.socket_path(SEALER)
    link = Link.connect(loop, path, answered, lambda _: None)
    link.send(encode_question(7, question))
    turn_until(loop, lambda: bool(answers))
    link.close()
    return answers[0]


def _read(found: BatchFile) -> bytes:
    return Path(found.path).read_bytes()[found.at : found.at + found.length]


def test_old_records_are_sealed_and_read_back(loop: TidyLoop, start: Any) -> None:
    batches = [batch(0, 3, time=10), batch(3, key=b"\xff", time=20), batch(4, 2, time=30)]
    broker, _ = start(batches)
    turn_until(loop, lambda: broker.shard.sealed_end == 6)
    assert [segment.kind for segment in broker.segments()] == ["parquet", "raw", "parquet"]
    found = _ask(loop, broker, Cold(NUMBER, offset=4, bytes_max=100))
    assert isinstance(found, BatchFile)
    assert _read(found) == batches[2]
    assert found.next_offset == 6
    assert _ask(loop, broker, OffsetForTime(NUMBER, timestamp=20)) == RecordTime(3, 20)
    assert _ask(loop, broker, OffsetForTime(NUMBER, timestamp=99)) is None


def test_a_job_that_cannot_be_done_is_answered_with_a_sentence(loop: TidyLoop, start: Any) -> None:
    broker, _ = start([batch(0)])
    answer = _ask(loop, broker, Cold(99, offset=0, bytes_max=1))
    assert answer == Failed("partition 99: no segment has offset 0")
    unknown = _ask(loop, broker, Unsealed(NUMBER))
    assert unknown == Failed("there is no command 'unsealed'")


def test_a_shard_asks_for_payloads_and_for_batches_with_them(loop: TidyLoop, start: Any) -> None:
    reference = reference_to(b"payload")
    broker, _ = start([handle_batch([reference])])
    store = Location.of(broker.inheritance.config).open()
    key = reference.key(PLACE.topic)
    look = FindPayloads([key, "other"])
    assert _ask(loop, broker, look) == {key: None, "other": None}
    uploaded(store, PLACE.topic, b"payload")
    facts = store.head(key)
    assert _ask(loop, broker, look) == {key: (7, facts.modified_ms), "other": None}
    for _ in range(2):  # Made once, then from the cache.
        found = _ask(loop, broker, Inline(NUMBER, offset=0, bytes_max=100_000, epoch=1))
        assert isinstance(found, BatchFile)
        [record] = [each for made in read_batches(_read(found)) for each in made.records()]
        assert (record.offset, record.value, found.next_offset) == (0, b"payload", 1)
    gone = _ask(loop, broker, Inline(99, offset=0, bytes_max=100_000, epoch=1))
    assert gone == Failed("the topic is gone")


def test_a_problem_is_reported_once_a_minute_for_all_its_keys(
    start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    _, sealer = start([batch(0)])
    for key in "ab":
        sealer._say_problem(Failed(f"{key}: it is away", problem="it is away"))
    assert capsys.readouterr().err == "sealer: a: it is away\n"


def test_young_records_are_sealed_only_under_pressure(loop: TidyLoop, start: Any) -> None:
    broker, sealer = start([batch(0)])
    broker.oldest_ms = wall_ms() + HOUR_MS
    broker.asked.clear()
    turn_until(loop, lambda: broker.asked.count(Partitions) >= 2)
    assert broker.segments() == []
    assert not sealer.sealing.hands[0].busy
    assert _ask(loop, broker, Pressure()) is True
    turn_until(loop, lambda: broker.shard.sealed_end == 1)


def test_sealing_under_pressure_claims_as_much_as_others_from_the_start(
    loop: TidyLoop, start: Any
) -> None:
    broker, sealer = start([batch(0)])
    broker.oldest_ms = wall_ms() + HOUR_MS
    broker.asked.clear()
    turn_until(loop, lambda: broker.asked.count(Partitions) >= 2)
    turn_until(loop, lambda: not sealer.sealing.hands[0].busy)
    assert _ask(loop, broker, Pressure()) is True
    turn_until(loop, lambda: bool(sealer._in_hand))
    assert sealer.sealing.hands[0]._claim is Claim.FULL


def test_sealing_no_longer_hurries_when_no_log_is_short_of_space(
    loop: TidyLoop, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "HURRY_MS", 0)
    broker, sealer = start([batch(0)])
    assert _ask(loop, broker, Pressure()) is True
    turn_until(loop, lambda: broker.shard.sealed_end == 1)
    turn_until(loop, lambda: not sealer.sealing.hands[0]._pace.is_short)


def test_sealing_goes_on_hurrying_while_a_log_was_short_of_space(
    loop: TidyLoop, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "HURRY_MS", HOUR_MS)
    broker, sealer = start([batch(0)])
    assert _ask(loop, broker, Pressure()) is True
    turn_until(loop, lambda: broker.shard.sealed_end == 1)
    for hands in sealer.sealing.hands:  # The next round says it again.
        hands.hurry(is_short=False)
    turn_until(loop, lambda: sealer.sealing.hands[0]._pace.is_short)


def test_sealing_and_publishing_take_idle_cores_while_no_space_is_wanted(
    loop: TidyLoop, start: Any
) -> None:
    broker, sealer = start([batch(0, time=10)])
    seen: set[int] = set()

    def is_sealed() -> bool:
        pid = sealer.sealing.hands[0]._pid
        if pid > 0 and not broker.shard.sealed_end:
            seen.add(os.sched_getscheduler(pid))
        return bool(broker.shard.sealed_end == 1)

    turn_until(loop, is_sealed)
    assert os.SCHED_IDLE in seen
    assert sealer.publishing._pace.base is Claim.SPARE
    assert sealer.publishing._pace.late_ms == broker.inheritance.config.seal_late_ms > 0


@pytest.mark.parametrize("page_cache_bytes", [0, -1], ids=["bounded", "unbounded"])
def test_a_segment_leaves_the_page_cache_once_it_is_sealed_where_that_is_bounded(
    loop: TidyLoop, start: Any, tmp_path: Path, page_cache_bytes: int
) -> None:
    broker, _ = start([batch(0, time=10)], **{"page.cache.bytes": page_cache_bytes})
    turn_until(loop, lambda: broker.shard.sealed_end == 1)
    [segment] = broker.segments()
    with (tmp_path / "filer" / segment.path).open("rb") as file:
        is_cached = read_now(file.fileno(), 100, 0) is not None
    assert is_cached == (page_cache_bytes < 0)


def test_workers_give_way_while_a_shard_is_busy(loop: TidyLoop, start: Any) -> None:
    broker, sealer = start([batch(0, time=10)])

    def gives_way(cpu_ms: int) -> bool:
        broker.cpu_ms = cpu_ms
        return all(each._shards_are_busy for each in (*sealer.sealing.hands, sealer.publishing))

    turn_until(loop, lambda: gives_way(monotonic_ms()))
    turn_until(loop, lambda: not gives_way(broker.cpu_ms))


def test_retention_deletes_what_is_sealed_and_old(
    loop: TidyLoop, start: Any, tmp_path: Path
) -> None:
    broker, _ = start(
        [batch(0, time=1), batch(1, time=wall_ms() + HOUR_MS)],
        **{
            "log.retention.ms": 1000,
            "log.retention.check.interval.ms": 1,
            "seal.bytes": 1,
        },
    )
    turn_until(loop, lambda: broker.shard.start == 1)
    turn_until(loop, lambda: [each.base_offset for each in broker.segments()] == [1])
    files = tmp_path / "filer" / "topics" / "kafka" / "orders" / "partition=0"
    turn_until(loop, lambda: len(list(files.iterdir())) == 1)


def test_a_worker_that_dies_is_replaced_and_the_job_done_again(loop: TidyLoop, start: Any) -> None:
    broker, sealer = start([batch(0)])
    turn_until(loop, lambda: sealer.sealing.hands[0]._pid > 0)
    os.kill(sealer.sealing.hands[0]._pid, 9)
    turn_until(loop, lambda: broker.shard.sealed_end == 1)


def test_a_worker_that_was_stopped_is_replaced_and_its_work_done_again(
    loop: TidyLoop, start: Any
) -> None:
    broker, sealer = start([batch(0)])
    turn_until(loop, lambda: broker.shard.sealed_end == 1)
    sealer.sealing.hands[0]._hung_ms = 500
    stopped = sealer.sealing.hands[0]._pid
    os.kill(stopped, signal.SIGSTOP)
    broker.shard.append(batch(1))
    turn_until(loop, lambda: broker.shard.sealed_end == 2)
    assert sealer.sealing.hands[0]._pid != stopped


def test_a_worker_whose_filer_hangs_is_replaced_and_others_read_meanwhile(
    loop: TidyLoop, start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filer = HangsOnReading(tmp_path)
    monkeypatch.setattr(Worker, "store", property(filer.store))
    broker, sealer = start([batch(0)])
    turn_until(loop, lambda: broker.shard.sealed_end == 1)
    filer.sign.touch()
    sealer.reading._patience = JobTimeouts(slow_ms=1, hung_ms=2000)
    answers: list[BatchFile | Failed] = []
    question = Cold(NUMBER, offset=0, bytes_max=1)
    sealer.reading.do(question, answers.append)
    turn_until(loop, filer.has_been_met)
    filer.sign.unlink()
    assert _ask(loop, broker, FindPayloads(["a/b"])) == {"a/b": None}
    assert answers == []
    turn_until(loop, lambda: bool(answers))
    assert answers == [Failed("a worker hangs ('cold', partition 1): it is replaced")]
    assert isinstance(_ask(loop, broker, question), BatchFile)


def test_a_start_removes_the_cache_of_an_earlier_sealer(
    loop: TidyLoop, start: Any, tmp_path: Path
) -> None:
    old = tmp_path / "cache" / "cold-2"
    old.mkdir(parents=True)
    for path in (old / "0.batches", tmp_path / "cache" / "1.batches"):
        path.write_bytes(b"of nobody")
    start([])
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_start_unlinks_a_symlinked_cache_and_keeps_its_target(
    loop: TidyLoop, start: Any, tmp_path: Path
) -> None:
    """Door fault 2: a cache that is a link had everything behind it deleted."""
    precious = tmp_path / "home" / "precious"
    precious.parent.mkdir()
    precious.write_text("data")
    (tmp_path / "cache").symlink_to(precious.parent)
    start([])
    assert precious.read_text() == "data"
    assert not (tmp_path / "cache").is_symlink()


def test_a_link_in_the_cache_goes_and_the_sealer_starts(tmp_path: Path) -> None:
    """Door fault 2, its sibling: the sealer died at each start."""
    precious = tmp_path / "home" / "precious"
    precious.parent.mkdir()
    precious.write_text("data")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "link").symlink_to(precious.parent)
    empty(tmp_path / "cache")
    assert precious.read_text() == "data"
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_damaged_segment_is_named_to_the_shard_and_in_the_log(
    loop: TidyLoop, start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker, _ = start([batch(0)])
    turn_until(loop, lambda: broker.shard.sealed_end == 1)
    [segment] = broker.segments()
    file = tmp_path / "filer" / segment.path
    file.write_bytes(file.read_bytes()[:-1])
    question = Cold(NUMBER, offset=0, bytes_max=1)
    damaged = _ask(loop, broker, question)
    assert isinstance(damaged, Failed)
    assert segment.path in damaged.error
    _ask(loop, broker, question)
    assert capsys.readouterr().err.count(segment.path) == 1


def test_nothing_is_sealed_to_a_filer_that_was_not_looked_at(
    loop: TidyLoop, start: Any, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("[default]\naws_access_key_id = x\naws_secret_access_key = x\n")
    away = {"filer.s3.endpoint": "http://127.0.0.1:9", "filer.root": "s3://bucket"}
    away["filer.s3.credentials"] = str(keys)
    broker, sealer = start([batch(0, 3, time=10)], **away)
    said: list[str] = []
    sealer._say_problem = lambda answer: said.append(getattr(answer, "error", ""))
    ready, write = os.pipe()
    object.__setattr__(sealer._inheritance, "ready_fd", write)
    sealer.begin()
    assert not sealer._is_fit
    turn_until(loop, lambda: sealer._has_reported)
    assert os.read(ready, 1)  # It serves what it can: what is in the log is in no danger.
    turn_until(loop, lambda: any("127.0.0.1:9" in sentence for sentence in said))
    os.close(ready)
    assert broker.segments() == []
    assert not sealer._is_fit
    answers = iter([None, "it ignores If-None-Match"])
    sealer.reading.do = lambda _job, answered: answered(next(answers))
    sealer._probe()
    assert sealer._is_fit
    with pytest.raises(SystemExit, match=r"filer.root: it ignores If-None-Match"):
        sealer._probe()
