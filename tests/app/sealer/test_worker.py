"""A worker's jobs, done in this process."""

import json
import socket
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from smq.app.process.inheritance import COORDINATOR, shard_name, socket_path
from smq.app.sealer.worker import Surroundings, Worker, problem_of, work
from smq.filer.location import Location
from smq.wire.internal import InternalFrame, InternalReader, encode_command
from tests.app.fake_peers import answered_by_a_thread
from tests.sealer.sealed import PLACE, batch, manifest_in

JOB: dict[str, Any] = {"do": "seal", "node": 1, "place": list(PLACE), "sealed_end": 0, "end": 1}


@pytest.fixture
def at(tmp_path: Path) -> Surroundings:
    filer = Location(str(tmp_path / "filer"))
    return Surroundings(tmp_path, filer, tmp_path / "run", tmp_path / "cache")


def _shard(frame: InternalFrame) -> bytes:
    is_batches = json.loads(frame.body)["do"] == "batches"
    return b'{"ok": {}}\n' + batch(0) if is_batches else b'{"ok": true}'


def test_without_the_others_a_job_is_an_error_in_words(at: Surroundings) -> None:
    answer = Worker(at).do({**JOB, "segment_bytes": 1})
    assert "store.sqlite" in answer["error"]


def test_a_filer_that_is_away_is_one_problem_whatever_is_wanted(at: Surroundings) -> None:
    Path(at.filer.root).symlink_to(at.filer.root)  # Whatever is below it cannot be looked at.
    worker = Worker(at)
    one, other = (worker.do({"do": "payloads", "keys": [key]}) for key in ("a/b", "c/d"))
    assert one["error"].startswith("a/b: ")
    assert other["error"].startswith("c/d: ")
    assert problem_of(one) == problem_of(other)
    assert problem_of({"error": "a/b: it is damaged"}) == "a/b: it is damaged"


def test_a_partition_that_is_gone_is_sealed_as_far_as_anybody_cares(at: Surroundings) -> None:
    def coordinator(_frame: InternalFrame) -> bytes:
        return b'{"ok": []}'

    with (
        manifest_in(at.data_dir) as manifest,
        answered_by_a_thread(socket_path(at.runtime_dir, shard_name(1)), _shard),
        answered_by_a_thread(socket_path(at.runtime_dir, COORDINATOR), coordinator),
    ):
        manifest._database.commit()
        worker = Worker(at)
        assert worker.do({**JOB, "segment_bytes": 1}) == {"ok": 1}
        assert list(worker.store.list()) == []
        worker._shards[1]._asker.close()
        worker.manifest._coordinator.close()


def test_files_nobody_names_are_swept(at: Surroundings) -> None:
    at.filer.open().put("topics/kafka/gone/partition=0/x.parquet", b"x")
    with manifest_in(at.data_dir) as manifest:
        manifest._database.commit()
        job = {"do": "sweep", "before_ms": 2**50, "after": ""}
        swept = ["topics/kafka/gone/partition=0/x.parquet"]
        assert Worker(at).do(job) == {"ok": {"swept": swept, "after": None}}


def test_work_answers_frame_by_frame_until_nobody_is_there(at: Surroundings) -> None:
    ours, theirs = socket.socketpair()
    thread = Thread(target=work, args=(theirs, at))
    thread.start()
    job = {"do": "seal", **{key: JOB[key] for key in JOB if key != "do"}, "segment_bytes": 1}
    ours.sendall(encode_command(5, job))
    [frame] = InternalReader().receive(ours.recv(1 << 16))
    assert frame.id == 5
    assert "error" in json.loads(frame.body)
    ours.close()
    thread.join(10)
    assert not thread.is_alive()
    theirs.close()


def test_work_ends_when_nobody_is_there_to_be_answered(at: Surroundings) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(encode_command(5, {"do": "payloads", "keys": []}))
        ours.close()
        work(theirs, at)


def test_work_ends_when_nothing_comes(at: Surroundings) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        work(theirs, at, idle_s=0.01)
