"""A worker process of the sealer: the only process of the broker that loads pyarrow.

It is forked on demand, does one job at a time (FOR_WORKER of smq.wire.internal.messages), and exits
when idle for a while, because only the end of a process returns Arrow's memory to the system. It
may be killed at any moment, and ends with its parent.
"""

import os
import secrets
import shutil
import socket
import traceback
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from shm.kernels.base.siphash import KEY_BYTES
from smq.app.process.asker import Asker
from smq.app.process.clock import monotonic_ms, now, wall_ms
from smq.app.process.collector import collect_as_usual
from smq.app.process.inheritance import COORDINATOR, shard_name, socket_path
from smq.app.sealer.ports import ShardOverSocket, StoredManifest
from smq.app.sealer.surroundings import Surroundings
from smq.app.sealer.turn import Turn
from smq.filer.s3 import S3Store, Unfit
from smq.filer.store import Store
from smq.model.errors import PeerError, StoreError, Unavailable
from smq.model.references import PREFIX, directory_of
from smq.model.segments import ATTEMPT_BITS, SEGMENTS_PREFIX, SegmentReach
from smq.sealer.housekeeping import Housekeeping, drop_unsealed
from smq.sealer.lake.state import in_step, states
from smq.sealer.merge_plan import RUN_MIN
from smq.sealer.pages import Pages
from smq.sealer.payloads import PayloadSweep, look_up
from smq.sealer.room import Room
from smq.store.store import FILE_NAME
from smq.wire.internal.form import Failed, Question, decode_question, encode_answer, name_of
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.messages import (
    FOR_WORKER,
    Compact,
    DescribeStorage,
    DropUnsealed,
    FindOrphans,
    FindPayloads,
    FindUnnamed,
    ForgetUnfinished,
    Merge,
    Probe,
    PublishTable,
    Retain,
    Retained,
    Seal,
    Storage,
    Sweep,
    SweepPayloads,
    Unnamed,
    WithdrawTable,
)
from smq.wire.internal.reads import (
    BatchFile,
    Cold,
    Inline,
    MakeInline,
    NewestRecord,
    OffsetForTime,
    RecordTime,
)

if TYPE_CHECKING:
    from smq.sealer.cold import BatchRange, Cache, ColdReader
    from smq.sealer.compact import Compaction
    from smq.sealer.lake.publish import Publishing

IDLE_S = 15.0
SEAL_TURN_MS = 10_000  # For one partition, while others wait to be sealed.
RECEIVE_BYTES = 1 << 16
CACHE_BYTES_MAX = 1 << 30
INLINE_BATCHES_BYTES = 1 << 20  # Batches scanned for one answer: some thousand handles.

A = TypeVar("A")


def _drawn() -> int:
    return secrets.randbits(ATTEMPT_BITS)


class Worker:
    """Does jobs. The first job of a kind opens and imports what that kind needs."""

    merge_run_min = RUN_MIN

    def __init__(
        self,
        at: Surroundings,
        asker: Callable[[Path], Asker] = Asker,
        draw: Callable[[], int] = _drawn,
    ) -> None:
        self._at, self._asker, self._draw = at, asker, draw
        self._secret = secrets.token_bytes(KEY_BYTES)  # Of tables whose keys clients choose.
        self._shards: dict[int, ShardOverSocket] = {}
        self._compaction: Compaction | None = None
        self.jobs: dict[type[Question[Any]], Callable[[Any], object]] = {
            Probe: self.probe,
            Seal: self.seal,
            DropUnsealed: self.drop_unsealed,
            Retain: self.retain,
            Merge: self.merge,
            Compact: self.compact,
            FindUnnamed: self.unnamed,
            Sweep: self.sweep,
            ForgetUnfinished: self.forget_unfinished,
            FindOrphans: self.orphans,
            SweepPayloads: self.sweep_payloads,
            PublishTable: self.publish_table,
            WithdrawTable: self.withdraw_table,
            FindPayloads: self.payloads,
            Cold: self.cold,
            MakeInline: self.inline,
            OffsetForTime: self.offset_for_time,
            NewestRecord: self.newest_record,
            DescribeStorage: self.storage,
        }

    def do(self, job: Question[A]) -> A | Failed:
        """Do a job and return its answer. Its errors name no secret.

        An unavailable filer gives the same `problem` for every kind of job. An unexpected exception
        ends only this job, and drops everything that the job may have left half done.
        """
        answer = self._done(job)
        if isinstance(answer, Failed):
            hidden = self._at.catalog.hidden
            return Failed(hidden(answer.error), answer.problem and hidden(answer.problem))
        return answer

    def _done(self, job: Question[A]) -> A | Failed:
        try:
            return cast("A", self.jobs[type(job)](job))
        except Unavailable as reason:
            return Failed(str(reason), reason.message)
        except (StoreError, PeerError) as reason:
            return Failed(str(reason))
        except Exception as reason:  # noqa: BLE001  (One of the three places that catch all.)
            self._begin_anew()
            what = f"{name_of(type(job))!r}, {subject_of(job)}"
            return Failed(f"a job failed ({what}): {_described(reason)}", what)

    def _begin_anew(self) -> None:
        """Drop everything open, except for the cache: shards read its files."""
        self._compaction = None
        self._shards.clear()
        for name, value in vars(Worker).items():
            if isinstance(value, cached_property) and name != "_cache":
                self.__dict__.pop(name, None)

    def probe(self, _job: Probe) -> str | None:
        """Why the filer must not be used; None if it may be."""
        if isinstance(self.store, S3Store):
            try:
                self.store.probe()
            except Unfit as reason:
                return str(reason)
        return None

    def seal(self, job: Seal) -> int:
        """Seal a partition; returns its new sealed end."""
        from smq.sealer.seal import Gone, Sealing  # noqa: PLC0415  (It imports pyarrow.)

        turn = Turn(SEAL_TURN_MS, self._at.pause)
        sealing = Sealing(
            self.store,
            self._shard(job.node),
            self.manifest,
            wall_ms,
            self._draw,
            self._room,
            job.schema,
            self._at.cache_dir,
            turn.is_over,
        )
        try:
            end, size = job.end, job.segment_bytes
            sealed = sealing.seal(job.place, job.sealed_end, end, size, job.log_start)
            if job.undecided_end > sealed and not sealing.is_over():
                sealing.seal_undecided(job.place, sealed, job.undecided_end, size, job.known_end)
        except Gone:
            return job.end
        return sealed

    def drop_unsealed(self, job: DropUnsealed) -> int:
        """Drop records past retention that could not be sealed; returns the log's new start."""
        shard, number = self._shard(job.node), job.place.number
        return drop_unsealed(shard, self.manifest, number, job.settings, wall_ms())

    def retain(self, job: Retain) -> Retained:
        """Delete some of what retention no longer keeps; returns which files."""
        keeping = Housekeeping(self.store, self._shard(job.node), self.manifest)
        retention = keeping.retain(job.place, job.settings, now(), job.state)
        return Retained([segment.path for segment in retention.deleted], retention.has_more)

    def merge(self, job: Merge) -> int:
        """Merge some of a partition's small segments, if due; returns how many became one."""
        from smq.sealer.merge import Merging  # noqa: PLC0415  (It imports pyarrow.)

        merging = Merging(
            self.store,
            self.manifest,
            self._draw,
            self._at.cache_dir,
            self.merge_run_min,
            self._room,
        )
        return merging.merge(job.place, job.settings)

    def compact(self, job: Compact) -> bool:
        """Do a step of compacting a partition, if due; returns whether more remains."""
        from smq.sealer.compact import Compaction, Ports  # noqa: PLC0415  (It imports pyarrow.)

        compaction, self._compaction = self._compaction, None
        # A pass that was given up, because its topic was not to be compacted, has no table now.
        is_same = compaction is not None and compaction.subject == (job.place, job.settings)
        if compaction is None or not (is_same and compaction.may_go_on()):
            shard = self._shard(job.node)
            means = self.manifest, now, self._draw, self._secret, self._at.cache_dir
            ports = Ports(self.store, shard, *means, room=self._room, memory=self._at.memory)
            compaction = Compaction(ports, job.place, job.settings)
        has_more = compaction.step()
        if has_more:
            self._compaction = compaction
        return has_more

    def unnamed(self, job: FindUnnamed) -> Unnamed:
        """The files of one page of the filer's list that are not in the manifest."""
        page = self._segment_files.take(job.after)
        paths = [facts.key for facts in page.files]
        found = self._keeping.unnamed(paths, job.before_ms, self._tables_in_step())
        return Unnamed(found, page.following)

    def sweep(self, job: Sweep) -> list[str]:
        """Delete those of these files that are still not in the manifest."""
        return self._keeping.sweep(job.files, job.before_ms, self._tables_in_step())

    @property
    def _keeping(self) -> Housekeeping:
        return Housekeeping(self.store, self._shard(1), self.manifest)

    def publish_table(self, job: PublishTable) -> bool:
        """Update a topic's lake table from the manifest; returns whether more remains."""
        return self._publishing().publish(job)

    def withdraw_table(self, job: WithdrawTable) -> bool:
        """Drop a lake table that its topic no longer has."""
        self._publishing().withdraw(job.namespace, job.topic, job.format)
        return True

    def _publishing(self) -> "Publishing":
        from smq.sealer.lake.publish import Publishing  # noqa: PLC0415  (It imports pyarrow.)

        at = self._at
        return Publishing(self.store, self.manifest, at.filer, at.catalog, at.data_dir, now)

    def _tables_in_step(self) -> dict[str, int]:
        """Since when each topic directory with a table has been in step with it; 0: unknown."""
        found = list(states(self._at.data_dir))
        ids = self.manifest.topic_ids() if found else {}
        return in_step(found, ids, monotonic_ms())

    def forget_unfinished(self, job: ForgetUnfinished) -> dict[str, int]:
        """Delete unfinished writes that are idle; the others, and when each was touched."""
        return self.store.sweep(job.idle)

    def orphans(self, job: FindOrphans) -> Unnamed:
        """The payloads of a page to which no record refers, now or later.

        Condemned payloads that the filer no longer lists there are forgotten.
        """
        page = self._payload_files.take(job.after)
        self._payload_sweep.forget_gone(page, job.after, monotonic_ms())
        found = self._payload_sweep.orphans(page.files, job.owners, wall_ms(), job.before_ms)
        return Unnamed(found, page.following)

    def sweep_payloads(self, job: SweepPayloads) -> list[str]:
        """Condemn orphans, and delete those that have been condemned long enough."""
        return self._payload_sweep.sweep(job.keys, job.owners, monotonic_ms(), job.settle_ms)

    @property
    def _payload_sweep(self) -> PayloadSweep:
        return PayloadSweep(self.store, self._shard, self.manifest)

    def payloads(self, job: FindPayloads) -> dict[str, tuple[int, int] | None]:
        """The length and upload time of payloads; None for those that do not exist.

        The time of a condemned one is 0: new records may not refer to it.
        """
        found = look_up(self.store, job.keys)
        there = {key: seen for key, seen in found.items() if seen is not None}
        condemned = self.manifest.condemned_payloads(list(there)) if there else ()
        return found | {key: (there[key][0], 0) for key in condemned}

    def cold(self, job: Cold) -> BatchFile:
        """Batches from sealed segments, as a range of a file."""
        return _answer(self._found(job), job)

    def inline(self, job: MakeInline) -> BatchFile:
        """Batches with handles replaced by their payloads, as a range of a file."""
        from smq.sealer.cold import BatchRange  # noqa: PLC0415  (It imports pyarrow.)
        from smq.sealer.inline import deliver, payload_in  # noqa: PLC0415  (For a rare topic.)

        at, asked = job.place, job.asked
        offset, bytes_max = asked.offset, asked.bytes_max
        key = self._inline_key(asked)
        is_cached = (kept := self._cache.get(key)) is not None
        if kept is None:
            batches = self._batches(job.node, asked)
            if isinstance(batches, BatchRange):
                return _answer(batches, asked)
            if not batches:  # Undecided yet: do not cache that.
                return BatchFile("", 0, 0, offset)
            payload_of = payload_in(self.store, directory_of(at.namespace, at.topic))
            delivered = deliver(batches, offset, bytes_max, payload_of)
            if not delivered.pieces:
                return BatchFile("", 0, 0, delivered.next_offset)
            kept = self._cache.put(key, delivered.pieces, delivered.places(offset))
        found = kept.find(offset, bytes_max)
        assert found is not None, "the batches made for this question have its offset"
        return _answer(found._replace(is_cached=is_cached), asked)

    def _inline_key(self, asked: Inline) -> tuple[str, int]:
        """The cache key of an answer. The batches at an offset change when compaction replaces the
        segment, or when the log has lost its end and continues in another leader epoch."""
        segments = self.manifest.segments(asked.number, asked.offset, count_max=1)
        path = segments[0].path if segments else ""
        how = f"{asked.epoch} {asked.bytes_max} {asked.limits} {asked.as_sent}"
        return f"inline {asked.number} {how} {path}", asked.offset

    def read_ahead(self) -> None:
        """While idle, prefetch what is probably asked for next."""
        if "_reader" in self.__dict__:
            self._reader.read_ahead()

    def _batches(self, node: int, asked: Inline) -> "bytes | BatchRange":
        """A partition's batches with a first record at `offset` or later, from the log or from
        segments; BatchRange: the segments have no records there."""
        number, offset = asked.number, asked.offset
        bytes_max = min(asked.bytes_max, INLINE_BATCHES_BYTES)
        try:
            shard = self._shard(node)
            return shard.for_reader(number, offset, bytes_max, as_sent=asked.as_sent)
        except StoreError:  # They are no longer in the log, or cannot be read there.
            if offset >= asked.limit:
                return b""
            reach = SegmentReach(asked.limit)
            found = self._found(Cold(number, offset, bytes_max, asked.limits, reach=reach))
        if not found.length:
            return found
        if found.is_undecided and not asked.as_sent:
            from smq.sealer.undecided import Undecided  # noqa: PLC0415  (It imports pyarrow.)

            shard, staging = self._shard(node), self._at.cache_dir
            undecided = Undecided(self.store, shard, self.manifest, staging)
            batches = undecided.batches(number, offset, asked.limit, bytes_max)
            return self._batches(node, asked) if batches is None else batches
        with found.path.open("rb") as file:
            return os.pread(file.fileno(), found.length, found.at)

    def _found(self, asked: Cold) -> "BatchRange":
        how = asked.bytes_max, asked.limits, asked.reach
        found = self._reader.read(asked.number, asked.offset, *how)
        if found is None:
            raise StoreError(f"partition {asked.number}", f"no segment has offset {asked.offset}")
        return found

    def offset_for_time(self, job: OffsetForTime) -> RecordTime | None:
        """The first sealed record at or after a time."""
        found = self._reader.offset_for_time(job.number, job.timestamp, job.log_start, job.limit)
        return None if found is None else RecordTime(*found)

    def newest_record(self, job: NewestRecord) -> RecordTime | None:
        """The sealed record with the largest time."""
        found = self._reader.newest(job.number, job.log_start, job.limit)
        return None if found is None else RecordTime(*found)

    def storage(self, job: DescribeStorage) -> Storage:
        """How much partitions store, and the disk's usage."""
        disk = shutil.disk_usage(self._at.data_dir)
        sealed = zip(job.numbers, job.sealed_ends, strict=True)
        sealed_bytes = [self.manifest.stored_bytes(number, end) for number, end in sealed]
        return Storage(sealed_bytes, disk.total, disk.free)

    @cached_property
    def store(self) -> Store:
        return self._at.open_filer()

    @cached_property
    def manifest(self) -> StoredManifest:
        coordinator = self._asker(socket_path(self._at.runtime_dir, COORDINATOR))
        return StoredManifest(self._at.data_dir / FILE_NAME, coordinator)

    @cached_property
    def _room(self) -> Room:
        return Room()

    @cached_property
    def _segment_files(self) -> Pages:
        return Pages(self.store, SEGMENTS_PREFIX)

    @cached_property
    def _payload_files(self) -> Pages:
        return Pages(self.store, PREFIX)

    @cached_property
    def _reader(self) -> "ColdReader":
        from smq.sealer.cold import ColdReader  # noqa: PLC0415  (It imports pyarrow.)

        return ColdReader(self.store, self.manifest, self._cache)

    @cached_property
    def _cache(self) -> "Cache":
        from smq.sealer.cold import Cache  # noqa: PLC0415  (It imports pyarrow.)

        life, spare = f"{self._draw():016x}", self._at.runtime_dir / self._at.cache_dir.name
        return Cache(self._at.cache_dir, CACHE_BYTES_MAX, monotonic_ms, life, spare)

    def _shard(self, node: int) -> ShardOverSocket:
        if node not in self._shards:
            asker = self._asker(socket_path(self._at.runtime_dir, shard_name(node)))
            self._shards[node] = ShardOverSocket(asker)
        return self._shards[node]


def subject_of(question: Question[Any]) -> str:
    """Describe in words what a question is about."""
    match question:
        case FindPayloads():
            return f"payload {', '.join(question.keys[:1])}"
        case Seal() | DropUnsealed() | Retain() | Merge() | Compact() | MakeInline():
            return f"partition {question.place.number}"
        case Cold() | OffsetForTime() | NewestRecord():
            return f"partition {question.number}"
        case PublishTable() | WithdrawTable():
            return f"table {question.namespace}.{question.topic}"
    return "the filer"


def _described(reason: Exception) -> str:
    """An exception and where it came from."""
    at = traceback.extract_tb(reason.__traceback__)[-1]
    return f"{type(reason).__name__}: {reason} ({Path(at.filename).name}:{at.lineno})"


def _answer(found: "BatchRange", asked: Cold | Inline) -> BatchFile:
    if found.length > asked.bytes_max and not asked.must_give:
        return BatchFile("", 0, 0, asked.offset)
    how = found.is_cached, found.is_undecided
    return BatchFile(str(found.path), found.at, found.length, found.next_offset, *how)


def work(sock: socket.socket, at: Surroundings, idle_s: float = IDLE_S) -> None:
    """Do jobs until idle for `idle_s` or the peer disconnects."""
    collect_as_usual()  # The catalogs of lake tables have cycles.
    worker, reader = Worker(at), InternalReader()
    sock.settimeout(idle_s)
    while True:
        try:
            received = sock.recv(RECEIVE_BYTES)
        except (TimeoutError, ConnectionError):
            return
        if not received:
            return
        for frame in reader.receive(received):
            at.pause.wait()
            answer = encode_answer(frame.id, _done(worker, frame.body))
            try:
                sock.sendall(answer)
            except (TimeoutError, ConnectionError):
                return
        worker.read_ahead()


def _done(worker: Worker, body: bytes) -> object:
    try:
        return worker.do(decode_question(body, FOR_WORKER))
    except PeerError as reason:
        return Failed(str(reason))
