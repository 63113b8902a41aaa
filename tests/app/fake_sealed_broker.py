"""A shard with one partition, a coordinator and their files, around a real sealer."""

from pathlib import Path
from uuid import UUID

from shm.catalog import CatalogBlock
from shm.cluster import ClusterBlock
from shm.timings import Timings
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
from smq.model.segments import Segment
from smq.store.store import FILE_NAME, Store as SqlStore
from smq.testing.sealing import FakeShard
from smq.wire.internal.form import Failed, decode_question
from smq.wire.internal.frames import InternalFrame
from smq.wire.internal.manifest import (
    CommitSegments,
    CondemnFiles,
    CondemnPayloads,
    DeleteSegments,
    ForgetPayloads,
    NamePayloads,
    SetLogStart,
)
from smq.wire.internal.messages import (
    FOR_COORDINATOR,
    FOR_SHARD,
    Batches,
    MarkSealed,
    Partitions,
    PartitionState,
    RaiseLogStart,
    RawBatches,
    ShardFacts,
)
from tests.app.fake_broker import config_for
from tests.app.fake_peers import TidyLoop, answer_body, answer_in, listen

NUMBER = 1


class FakeSealedBroker:
    """What the sealer sees of the others. Answers while `loop` turns."""

    def __init__(
        self, loop: TidyLoop, directory: Path, batches: list[bytes], **settings: object
    ) -> None:
        self.runtime_dir = directory / "run"
        self.shard = FakeShard(batches)
        self.oldest_ms = 0
        self.wal_bytes = self.cpu_ms = 0
        self.asked: list[type] = []
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
            nodes=ClusterBlock.create(range(1, 2), 1, 0),
            catalog=catalog,
            access=CatalogBlock.create(4096),
            timings=Timings.create(range(1, 5)),
            logs={},
            tcp_listeners={},
            addresses={},
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
        question = decode_question(frame.body, FOR_SHARD)
        self.asked.append(type(question))
        match question:
            case Partitions():
                return answer_body(self._facts())
            case Batches(number, offset, bytes_max):
                try:
                    data = self.shard.batches(number, offset, bytes_max, synced=question.synced)
                except Unavailable as reason:  # It is sealed already.
                    return answer_body(Failed(str(reason)))
                return answer_body(RawBatches(len(data)), data)
            case MarkSealed(number, end):
                self.shard.sealed(number, end)
            case RaiseLogStart(number, offset):
                self.shard.log_start(number, offset)
        return answer_body(answer=True)

    def _facts(self) -> ShardFacts:
        shard = self.shard
        state = PartitionState(
            NUMBER, 0, shard.start, shard.sealed_end, shard.end, 1, self.oldest_ms
        )
        wal = self.wal_bytes, 100
        return ShardFacts(1, 0, 1, False, [], [state], *wal, cpu_ms=self.cpu_ms)

    def _coordinator_answers(self, frame: InternalFrame) -> bytes:
        manifest = self.store.manifest
        answer: object = True
        match decode_question(frame.body, FOR_COORDINATOR):
            case NamePayloads(path, ids):
                manifest.name_payloads(path, ids)
            case CommitSegments(segments):
                manifest.commit_segments(segments)
                answer = segments
            case DeleteSegments(paths):
                manifest.delete_segments(paths)
            case CondemnFiles(paths):
                answer = manifest.condemn_files(paths)
            case CondemnPayloads(keys, now_ms, settle_ms):
                answer = manifest.condemn_payloads(keys, now_ms, settle_ms)
            case ForgetPayloads(keys):
                manifest.forget_payloads(keys)
            case SetLogStart(number, offset):
                manifest.set_log_start(number, offset)
        self.store.commit()
        return answer_body(answer)
