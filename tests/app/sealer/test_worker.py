"""A worker's jobs, done in this process."""

import gc
import socket
from pathlib import Path
from threading import Thread
from typing import Any, cast, get_type_hints

import numpy as np
import pytest

from smq.app.process.collector import collect_only_young
from smq.app.process.inheritance import COORDINATOR, shard_name, socket_path
from smq.app.sealer.surroundings import Surroundings
from smq.app.sealer.worker import Worker, work
from smq.filer.location import Location
from smq.model.config import Config
from smq.model.segments import Segment
from smq.model.topic_settings import TopicSettings
from smq.sealer.lake.catalog import CatalogSettings
from smq.sealer.raw import INDEX_DTYPE
from smq.wire.internal.form import (
    Failed,
    answer_type,
    decode_answer,
    decode_question,
    encode_question,
)
from smq.wire.internal.frames import InternalFrame, InternalReader
from smq.wire.internal.manifest import CondemnFiles
from smq.wire.internal.messages import (
    FOR_COORDINATOR,
    FOR_SHARD,
    FOR_WORKER,
    Batches,
    Compact,
    FindPayloads,
    FindUnnamed,
    MarkSealed,
    Merge,
    RawBatches,
    Seal,
    Sweep,
    Unnamed,
)
from smq.wire.internal.reads import BatchFile, Inline, MakeInline
from tests.app.fake_peers import answer_body, answered_by_a_thread
from tests.sealer.sealed import PLACE, batch, manifest_in

JOB = Seal(node=1, place=PLACE, sealed_end=0, end=1, segment_bytes=1)


@pytest.fixture
def at(tmp_path: Path) -> Surroundings:
    filer = Location(str(tmp_path / "filer"))
    return Surroundings(tmp_path, filer, tmp_path / "run", tmp_path / "cache")


def _shard(frame: InternalFrame) -> bytes:
    if isinstance(decode_question(frame.body, FOR_SHARD), Batches):
        return answer_body(RawBatches(len(batch(0))), batch(0))
    return answer_body(answer=True)


def _failed(answer: object) -> Failed:
    assert isinstance(answer, Failed)
    return answer


def test_each_question_of_the_table_has_a_job_of_its_types(at: Surroundings) -> None:
    jobs = Worker(at).jobs
    assert set(jobs) == set(FOR_WORKER.values())
    for kind, job in jobs.items():
        hints = get_type_hints(job)
        assert (hints.get("job", hints.get("_job")), hints["return"]) == (kind, answer_type(kind))


def test_without_the_others_a_job_is_an_error_in_words(at: Surroundings) -> None:
    assert "store.sqlite" in _failed(Worker(at).do(JOB)).error


def test_an_unavailable_filer_gives_one_problem_for_all_jobs(at: Surroundings) -> None:
    Path(at.filer.root).symlink_to(at.filer.root)  # Whatever is below it cannot be looked at.
    worker = Worker(at)
    one, other = (_failed(worker.do(FindPayloads([key]))) for key in ("a/b", "c/d"))
    assert one.error.startswith("a/b: ")
    assert other.error.startswith("c/d: ")
    assert one.problem is not None
    assert one.what == other.what == one.problem


def test_a_partition_that_is_gone_is_sealed_as_far_as_anybody_cares(at: Surroundings) -> None:
    def coordinator(_frame: InternalFrame) -> bytes:
        return answer_body([])

    with (
        manifest_in(at.data_dir) as manifest,
        answered_by_a_thread(socket_path(at.runtime_dir, shard_name(1)), _shard),
        answered_by_a_thread(socket_path(at.runtime_dir, COORDINATOR), coordinator),
    ):
        manifest._database.commit()
        worker = Worker(at)
        assert worker.do(JOB) == 1
        assert list(worker.store.list()) == []
        worker._shards[1]._asker.close()
        worker.manifest._coordinator.close()


def test_an_unnamed_file_is_swept(at: Surroundings) -> None:
    at.filer.open().put("topics/kafka/gone/partition=0/x.parquet", b"x")
    with manifest_in(at.data_dir) as manifest:
        manifest._database.commit()
        files = ["topics/kafka/gone/partition=0/x.parquet"]
        worker = Worker(at)
        assert worker.do(FindUnnamed(2**50, "")) == Unnamed(files, after=None)

        def coordinator(frame: InternalFrame) -> bytes:
            asked = decode_question(frame.body, FOR_COORDINATOR)
            assert asked == CondemnFiles(files)
            return answer_body(files)

        with answered_by_a_thread(socket_path(at.runtime_dir, COORDINATOR), coordinator):
            assert worker.do(Sweep(files, 2**50)) == files
            assert list(worker.store.list()) == []
            worker.manifest._coordinator.close()


def test_each_life_of_a_worker_draws_names_of_its_own(at: Surroundings) -> None:
    """Data fault 9: the worker that reads ends when idle, and its successor begins at zero."""
    names = set()
    for _ in range(2):
        made = Worker(at)._cache.put(("s", 0), [b"x"], np.zeros(1, INDEX_DTYPE))
        names.add(made.path.name)
    assert len(names) == 2


def test_cached_inline_batches_are_not_used_for_other_records_at_the_same_offset(
    at: Surroundings,
) -> None:
    """Data fault 9: compaction replaces a segment, and a log that has lost its end goes on."""
    place, shard = PLACE._replace(topic="orders"), [batch(0)]

    def answers(_frame: InternalFrame) -> bytes:
        return answer_body(RawBatches(len(shard[0])), shard[0])

    def read(worker: Worker, epoch: int) -> bytes:
        found = worker.do(MakeInline(1, place, Inline(place.number, 0, 1000, epoch)))
        assert isinstance(found, BatchFile)
        return Path(found.path).read_bytes()[found.at : found.at + found.length]

    with (
        manifest_in(at.data_dir) as manifest,
        answered_by_a_thread(socket_path(at.runtime_dir, shard_name(1)), answers),
    ):
        manifest._database.commit()
        worker = Worker(at)
        first = read(worker, epoch=1)
        shard[0] = batch(0, 2)
        assert read(worker, epoch=1) == first, "it is cached"
        assert read(worker, epoch=2) != first
        shard[0] = batch(0, 3)
        line = Segment(1, 0, 3, "parquet", "topics/x.parquet", 1, 1, 3, 0, 0, 1, 1)
        manifest.commit_segments([line])
        manifest._database.commit()
        assert len(read(worker, epoch=2)) > len(first)
        worker._shards[1]._asker.close()


def test_an_undecided_inline_answer_is_not_cached(at: Surroundings) -> None:
    """Data fault 9, its kind: an empty answer was kept for the offset. What was committed then
    was delivered to nobody until it was sealed."""
    place, decided = PLACE._replace(topic="orders"), [b"", batch(0)]

    def answers(_frame: InternalFrame) -> bytes:
        found = decided.pop(0)
        return answer_body(RawBatches(len(found)), found)

    asked = MakeInline(1, place, Inline(place.number, 0, 1000, 1))
    with (
        manifest_in(at.data_dir) as manifest,
        answered_by_a_thread(socket_path(at.runtime_dir, shard_name(1)), answers),
    ):
        manifest._database.commit()
        worker = Worker(at)
        before, after = worker.do(asked), worker.do(asked)
        worker._shards[1]._asker.close()
    assert isinstance(before, BatchFile)
    assert isinstance(after, BatchFile)
    assert (before.length, before.next_offset) == (0, 0)
    assert after.length > 0


def test_an_inline_answer_that_cannot_be_read_now_is_an_error(at: Surroundings) -> None:
    """It was an answer without records, and the client asked again at once, for a minute."""
    place = PLACE._replace(topic="orders")

    def answers(_frame: InternalFrame) -> bytes:
        return answer_body(RawBatches(0, is_unread=True))

    with (
        manifest_in(at.data_dir) as manifest,
        answered_by_a_thread(socket_path(at.runtime_dir, shard_name(1)), answers),
    ):
        manifest._database.commit()
        worker = Worker(at)
        said = worker.do(MakeInline(1, place, Inline(place.number, 0, 1000, 1)))
        worker._shards[1]._asker.close()
    assert isinstance(said, Failed)


def test_work_answers_each_frame_until_the_peer_disconnects(at: Surroundings) -> None:
    ours, theirs = socket.socketpair()
    thread = Thread(target=work, args=(theirs, at))
    thread.start()
    ours.sendall(encode_question(5, JOB))
    [frame] = InternalReader().receive(ours.recv(1 << 16))
    assert frame.id == 5
    assert "store.sqlite" in _failed(decode_answer(Seal, frame.body)).error
    ours.sendall(encode_question(6, MarkSealed(1, 2)))
    [frame] = InternalReader().receive(ours.recv(1 << 16))
    refused = _failed(decode_answer(MarkSealed, frame.body))
    assert (frame.id, refused.error) == (6, "there is no command 'mark_sealed'")
    ours.close()
    thread.join(10)
    assert not thread.is_alive()
    theirs.close()


def test_work_ends_when_the_peer_has_disconnected(at: Surroundings) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(encode_question(5, FindPayloads([])))
        ours.close()
        work(theirs, at)


def test_work_ends_when_nothing_comes(at: Surroundings) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        work(theirs, at, idle_s=0.01)


def test_a_worker_collects_cycles_of_any_age(at: Surroundings) -> None:
    """The tables of an Iceberg catalog have cycles: while one was published all the time, its
    worker grew without end."""
    before = gc.get_threshold()
    ours, theirs = socket.socketpair()
    ours.close()
    try:
        collect_only_young()
        with theirs:
            work(theirs, at)
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*before)


def test_an_unexpected_exception_ends_one_job_with_an_error_that_names_it(at: Surroundings) -> None:
    """Data fault 19: it ended the worker, whatever other jobs waited."""
    worker = Worker(at)
    worker.__dict__["_cache"] = cache = object()
    room = worker._room
    compaction = worker._compaction = cast("Any", object())

    def fails(_job: object) -> object:
        assert worker._compaction is compaction
        raise KeyError("nobody thought of this")

    worker.jobs[Seal] = fails
    failed = _failed(worker.do(JOB))
    assert "'seal', partition 1" in failed.error
    assert "KeyError: 'nobody thought of this'" in failed.error
    assert "test_worker.py" in failed.error
    assert worker._compaction is None
    assert worker._room is not room
    assert worker._cache is cache  # Shards may be reading its files.
    swept = worker.do(FindPayloads([]))
    assert swept == {}


class GivenUp:
    """A pass whose memory was cleared."""

    subject = PLACE, TopicSettings.of({"cleanup.policy": "compact"}, Config(shards=1))

    def may_go_on(self) -> bool:
        return False

    def step(self) -> bool:
        raise AssertionError("its table has gone")


def test_a_pass_that_was_given_up_begins_anew(at: Surroundings, tmp_path: Path) -> None:
    worker = Worker(at)
    worker._compaction = cast("Any", GivenUp())
    with manifest_in(tmp_path):
        assert worker.do(Compact(1, *GivenUp.subject)) is False
    assert worker._compaction is None


def test_no_error_of_a_job_names_a_secret(at: Surroundings) -> None:
    """Door fault 7: an exception of a library repeats the address that it could not read."""
    uri = "http://u:s3cret@127.0.0.1:x/"
    worker = Worker(at._replace(catalog=CatalogSettings(uri)))

    def fails(_job: Seal) -> None:
        raise ValueError(f"Failed to parse: {uri}")

    worker.jobs[Seal] = fails
    failed = _failed(worker.do(JOB))
    assert "ValueError: Failed to parse: (hidden)" in failed.error
    assert "s3cret" not in str(failed)


def test_a_merge_and_a_compaction_need_no_directory_beside_a_local_filer(
    at: Surroundings, tmp_path: Path
) -> None:
    """Data fault 19: making one ended the sealing worker when the disk was full."""
    at.cache_dir.write_bytes(b"no directory can be made here")
    settings = TopicSettings.of({}, Config(shards=1))
    with manifest_in(tmp_path):
        worker = Worker(at)
        assert worker.do(Merge(PLACE, settings)) == 0
        assert worker.do(Compact(1, PLACE, settings)) is False
