"""A shard with one partition, a coordinator and their files, around a real sealer."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

from shm.catalog import CatalogBlock
from shm.cluster import ClusterBlock
from smq.app.process.inheritance import (
    COORDINATOR,
    SEALER,
    Inheritance,
    Stop,
    shard_name,
    socket_path,
)
from smq.model.catalog import Catalog, Topic
from smq.model.errors import Unavailable
from smq.store.rows import Segment
from smq.store.store import FILE_NAME, Store as SqlStore
from smq.testing.sealing import FakeShard
from smq.wire.internal import InternalFrame
from tests.app.fake_broker import config_for
from tests.app.fake_peers import TidyLoop, answer_in, listen

NUMBER = 1


class FakeSealedBroker:
    """What the sealer sees of the others. Answers while `loop` turns."""

    def __init__(
        self, loop: TidyLoop, directory: Path, batches: list[bytes], **settings: object
    ) -> None:
        self.runtime_dir = directory / "run"
        self.shard = FakeShard(batches)
        self.oldest_ms = 0
        self.wal_bytes = 0
        self.asked: list[str] = []
        topic = Topic("orders", UUID(int=1), (NUMBER,), (0,))
        self.store = SqlStore.open(directory / FILE_NAME)
        self.store.add_topic(topic, 0)
        self.store.commit()
        catalog = CatalogBlock.create(1 << 16)
        catalog.publish(Catalog("cluster", 1, {topic.name: topic}).encode())
        answer_in(loop, socket_path(self.runtime_dir, shard_name(1)), self._shard_answers)
        answer_in(loop, socket_path(self.runtime_dir, COORDINATOR), self._coordinator_answers)
        self.inheritance = Inheritance(
            config=config_for(directory, 1, **settings),
            data_dir=directory,
            cluster_id="cluster",
            runtime_dir=self.runtime_dir,
            generation=0,
            log_count=1,
            nodes=ClusterBlock.create(1, 1, 0),
            catalog=catalog,
            logs={},
            tcp_listeners={},
            unix_listeners={SEALER: listen(socket_path(self.runtime_dir, SEALER))},
            stop=Stop(),
        )

    def close(self) -> None:
        """Close what is not the loop's."""
        self.store.close()
        self.inheritance.stop.close()
        for listener in self.inheritance.unix_listeners.values():
            listener.close()

    def segments(self) -> list[Segment]:
        """What is in the manifest."""
        return self.store.manifest.segments(NUMBER)

    def _shard_answers(self, frame: InternalFrame) -> bytes:
        command: dict[str, Any] = json.loads(frame.body)
        self.asked.append(command["do"])
        match command.pop("do"):
            case "partitions":
                return json.dumps(self._partitions()).encode()
            case "batches":
                try:
                    return b'{"ok": {}}\n' + self.shard.batches(**command)
                except Unavailable as reason:  # It is sealed already.
                    return json.dumps({"error": str(reason)}).encode()
            case "sealed":
                self.shard.sealed(**command)
            case "log_start":
                self.shard.log_start(**command)
        return b'{"ok": true}'

    def _partitions(self) -> dict[str, Any]:
        shard = self.shard
        row = [NUMBER, 0, shard.start, shard.sealed_end, shard.end, 1, self.oldest_ms]
        told = {"since": 0, "version": 1, "more": False, "gone": [], "rows": [row]}
        return {"ok": told, "life": 1, "wal_bytes": self.wal_bytes, "wal_bytes_max": 100}

    def _coordinator_answers(self, frame: InternalFrame) -> bytes:
        command: dict[str, Any] = json.loads(frame.body)
        manifest, ok = self.store.manifest, True
        match command["do"]:
            case "commit_segments":
                segments = [Segment(**fields) for fields in command["segments"]]
                manifest.commit_segments(segments, command["payloads"])
                ok = command["segments"]
            case "delete_segments":
                manifest.delete_segments(command["number"], command["base_offsets"])
            case "set_log_start":
                manifest.set_log_start(command["number"], command["offset"])
        self.store.commit()
        return json.dumps({"ok": ok}).encode()
