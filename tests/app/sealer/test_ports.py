"""The sealer's ports over sockets send what the other side understands."""

from pathlib import Path
from typing import Any

import pytest

from smq.app.process.asker import Asker
from smq.app.sealer.ports import ShardOverSocket, StoredManifest
from smq.model.errors import StoreError
from smq.model.segments import Segment
from smq.wire.internal.form import Question, decode_question
from smq.wire.internal.frames import InternalFrame
from smq.wire.internal.manifest import CommitSegments, DeleteSegments, NamePayloads, SetLogStart
from smq.wire.internal.messages import (
    FOR_COORDINATOR,
    FOR_SHARD,
    Batches,
    Ends,
    FindEnds,
    MarkSealed,
    RaiseLogStart,
    RawBatches,
    Unsealed,
    UnsealedPart,
    UnsealedParts,
)
from tests.app.fake_peers import answer_body, answered_by_a_thread
from tests.sealer.sealed import manifest_in

SEGMENT = Segment(1, 0, 5, "parquet", "topics/x.parquet", 10, 11, 5, 0, 9, 1, 2)


def test_a_shard_is_asked_in_the_words_it_knows(tmp_path: Path) -> None:
    asked: list[Question[Any]] = []
    parts = UnsealedParts(3, 35, [UnsealedPart(5, 1, 10), UnsealedPart(9, 2, 20)], 4, 9)

    def answer(frame: InternalFrame) -> bytes:
        asked.append(decode_question(frame.body, FOR_SHARD))
        match asked[-1]:
            case Batches():
                return answer_body(RawBatches(5), b"hello")
            case Unsealed():
                return answer_body(parts)
            case FindEnds():
                return answer_body(Ends(3, 9))
        return answer_body(answer=True)

    with answered_by_a_thread(tmp_path / "shard-1.sock", answer):
        asker = Asker(tmp_path / "shard-1.sock")
        shard = ShardOverSocket(asker)
        assert shard.batches(4, 7, 100) == shard.tail(4, 7, 100) == b"hello"
        shard.sealed(4, 9)
        shard.log_start(4, 2)
        assert (shard.unsealed(4), shard.ends(4)) == (parts, Ends(3, 9))
        asker.close()
    assert asked == [
        Batches(number=4, offset=7, bytes_max=100, synced=True, shown=True),
        Batches(number=4, offset=7, bytes_max=100, synced=False, shown=False),
        MarkSealed(number=4, end=9),
        RaiseLogStart(number=4, offset=2),
        Unsealed(number=4),
        FindEnds(number=4),
    ]


def test_batches_that_a_reader_cannot_have_now_are_an_error(tmp_path: Path) -> None:
    said = [RawBatches(5), RawBatches(0, is_unread=True), RawBatches(0)]
    asked: list[Question[Any]] = []

    def answer(frame: InternalFrame) -> bytes:
        asked.append(decode_question(frame.body, FOR_SHARD))
        found = said[len(asked) - 1]
        return answer_body(found, b"hello"[: found.bytes])

    with answered_by_a_thread(tmp_path / "shard-1.sock", answer):
        asker = Asker(tmp_path / "shard-1.sock")
        shard = ShardOverSocket(asker)
        assert shard.for_reader(4, 7, 100, as_sent=True) == b"hello"
        with pytest.raises(StoreError, match="cannot be read now"):
            shard.for_reader(4, 7, 100, as_sent=False)
        assert shard.for_reader(4, 7, 100, as_sent=False) == b""
        asker.close()
    assert asked[:2] == [
        Batches(number=4, offset=7, bytes_max=100, synced=False, as_sent=is_sent)
        for is_sent in (True, False)
    ]


def test_the_manifest_is_read_in_the_store_and_changed_by_the_coordinator(tmp_path: Path) -> None:
    asked: list[Question[Any]] = []

    def answer(frame: InternalFrame) -> bytes:
        question = decode_question(frame.body, FOR_COORDINATOR)
        asked.append(question)
        if isinstance(question, CommitSegments):
            return answer_body(question.segments)
        return answer_body(answer=True)

    with (
        manifest_in(tmp_path) as kept,
        answered_by_a_thread(tmp_path / "coordinator.sock", answer),
    ):
        kept.commit_segments([SEGMENT])
        kept.set_log_start(1, 3)
        kept._database.commit()
        asker = Asker(tmp_path / "coordinator.sock")
        manifest = StoredManifest(tmp_path / "store.sqlite", asker)
        assert manifest.segments(1) == [SEGMENT]
        assert manifest.segments(1, 5) == []
        assert manifest.log_start(1) == 3
        manifest.name_payloads(SEGMENT.path, ("a", "b"))
        assert manifest.commit_segments([SEGMENT]) == [SEGMENT]
        manifest.delete_segments([SEGMENT.path])
        manifest.set_log_start(1, 5)
        asker.close()
    assert asked == [
        NamePayloads(SEGMENT.path, ["a", "b"]),
        CommitSegments([SEGMENT]),
        DeleteSegments([SEGMENT.path]),
        SetLogStart(number=1, offset=5),
    ]
