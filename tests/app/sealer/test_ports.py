"""The sealer's ports over sockets say what the other side understands."""

import json
from pathlib import Path
from typing import Any

from smq.app.process.asker import Asker
from smq.app.sealer.ports import ShardOverSocket, StoredManifest
from smq.store.rows import Segment
from smq.wire.internal import InternalFrame
from tests.app.fake_peers import answered_by_a_thread
from tests.sealer.sealed import manifest_in

SEGMENT = Segment(1, 0, 5, "parquet", "topics/x.parquet", 10, 11, 5, 0, 9, 1, 2)


def test_a_shard_is_asked_in_the_words_it_knows(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def answer(frame: InternalFrame) -> bytes:
        asked.append(json.loads(frame.body))
        return b'{"ok": {"bytes": 5}}\nhello' if asked[-1]["do"] == "batches" else b'{"ok": true}'

    with answered_by_a_thread(tmp_path / "shard-1.sock", answer):
        asker = Asker(tmp_path / "shard-1.sock")
        shard = ShardOverSocket(asker)
        assert shard.batches(4, 7, 100) == shard.tail(4, 7, 100) == b"hello"
        shard.sealed(4, 9)
        shard.log_start(4, 2)
        asker.close()
    assert asked == [
        {"do": "batches", "number": 4, "offset": 7, "bytes_max": 100, "synced": True},
        {"do": "batches", "number": 4, "offset": 7, "bytes_max": 100}
        | {"synced": False, "shown": False},
        {"do": "sealed", "number": 4, "end": 9},
        {"do": "log_start", "number": 4, "offset": 2},
    ]


def test_the_manifest_is_read_in_the_store_and_changed_by_the_coordinator(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def answer(frame: InternalFrame) -> bytes:
        asked.append(json.loads(frame.body))
        return json.dumps({"ok": asked[-1].get("segments", True)}).encode()

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
        assert manifest.commit_segments([SEGMENT]) == [SEGMENT]
        manifest.delete_segments(1, [0])
        manifest.set_log_start(1, 5)
        asker.close()
    assert [each["do"] for each in asked] == ["commit_segments", "delete_segments", "set_log_start"]
    assert asked[1:] == [
        {"do": "delete_segments", "number": 1, "base_offsets": [0]},
        {"do": "set_log_start", "number": 1, "offset": 5},
    ]
