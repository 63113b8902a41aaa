"""Seals a partition: batches from its shard, a file in the filer, a line in the manifest.

    file synced  →  line committed  →  the shard's checkpoint says so  →  the shard frees its log

A kill between any two steps is safe. A file without a line is swept later. A line that the shard
does not know yet is reported again before anything else is sealed. If two processes seal the same
partition (an old one and its successor), the manifest takes the first line and returns it to the
second. A segment is a run of batches of one kind, so a raw batch does not make its neighbours raw,
unless such batches come so often that their files would be many and small.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c
from shm.kernels.record.records import B_MAX_TIMESTAMP, C_TIMESTAMP
from smq.filer.store import Data, Store
from smq.model.errors import AlreadyExists, Unavailable
from smq.model.segments import UNDECIDED, SealedPartition, Segment
from smq.sealer.decode import Kind, Piece, cut
from smq.sealer.parquet import ParquetWriter
from smq.sealer.payloads import CHUNK_BYTES, name_all, payloads_of
from smq.sealer.ports import ManifestPort, ShardPort
from smq.sealer.raw import RawWriter
from smq.sealer.room import Room
from smq.sealer.undecided import Undecided

MiB = 1024 * 1024
# A file is built in memory, and query engines prefer this size, whatever `smq.seal.bytes` is.
SEGMENT_BYTES_MAX = 128 * MiB
SEGMENT_RECORDS_MAX = 8_000_000  # The records whose keys one pass of compaction remembers.
# How many files of a seal may end because a batch of another kind follows: PARTED_FILES, and one
# more for each PARTED_BYTES. After that a raw segment goes on: it can hold batches of any kind.
PARTED_FILES, PARTED_BYTES = 8, MiB
SUFFIXES = {Kind.ROWS: "parquet", Kind.RAW: "batches"}
KINDS = {Kind.ROWS: "parquet", Kind.RAW: "raw"}


class Gone(Exception):
    """The partition was deleted while it was being sealed."""


class _Open:
    """A segment under construction."""

    def __init__(
        self,
        base_offset: int,
        kind: Kind,
        writer: ParquetWriter | RawWriter,
        *,
        log_append_time: bool,
    ) -> None:
        self.base_offset = self.end_offset = base_offset
        self.kind, self.log_append_time, self.writer = kind, log_append_time, writer
        self.record_count = self.sent_bytes = 0
        self.times: list[int] = []  # Of records …
        self.checked: list[int] = []  # … and in headers, which were checked when they came.
        self.payloads: set[str] = set()

    def takes(self, piece: Piece, *, may_part: bool) -> bool:
        """Whether a piece belongs in this segment: markers in any, others with their kind or, if
        files must not part, in a raw one."""
        if piece.kind is Kind.CONTROL:
            return True
        if self.kind is Kind.RAW:
            return piece.kind is Kind.RAW or not may_part
        return piece.kind is self.kind and piece.log_append_time == self.log_append_time

    def add(self, piece: Piece) -> None:
        self.writer.add(piece)
        self.end_offset = piece.end_offset
        self.record_count += piece.record_count if piece.kind is not Kind.CONTROL else 0
        self.sent_bytes += len(piece.batches)
        rows = piece.kind is Kind.ROWS
        times = piece.columns[C_TIMESTAMP] if rows else piece.facts[B_MAX_TIMESTAMP]
        self.times += [int(times.min()), int(times.max())]
        checked = piece.facts[B_MAX_TIMESTAMP]
        self.checked += [int(checked.min()), int(checked.max())]
        self.payloads.update(payloads_of(piece))


def parquet_writer(
    place: SealedPartition, *, log_append_time: bool, schema: str = "", room: Room | None = None
) -> ParquetWriter:
    """A writer of a segment of this partition; see there for schema and room."""
    labels = {"namespace": place.namespace, "topic": place.topic, "partition": str(place.partition)}
    return ParquetWriter(labels, log_append_time=log_append_time, schema=schema, room=room)


class Sealing(NamedTuple):
    """The job, and the ports it uses. `wall_ms` is the wall clock; files are built in the room.

    `draw` gives an `attempt` for each file's name. `schema` is the topic's `smq.schema`.
    `staging` takes copies of files that are not on this host. `is_over`: it is others' turn.
    """

    store: Store
    shard: ShardPort
    manifest: ManifestPort
    wall_ms: Callable[[], int]
    draw: Callable[[], int]
    room: Room
    schema: str = ""
    staging: Path | None = None
    is_over: Callable[[], bool] = lambda: False

    def seal(
        self,
        place: SealedPartition,
        sealed_end: int,
        end: int,
        segment_bytes: int,
        log_start: int = 0,
    ) -> int:
        """Seal a partition's records of [sealed_end, end); returns the new sealed end.

        That is below `end` if the shard has no more, or if it is others' turn: what typed columns
        and compression make of some bytes takes any time. `log_start` is the shard's. Raises Gone,
        StoreError, PeerError.
        """
        self._start_at(place.number, log_start)
        position = self._resume(place, sealed_end)
        segment: _Open | None = None
        segment_bytes = min(segment_bytes, SEGMENT_BYTES_MAX)
        chunk_bytes = min(CHUNK_BYTES, segment_bytes)
        parted = sent_bytes = 0
        for piece in self._pieces(place.number, position, end, chunk_bytes):
            # Whether there may be a file of rows, and one that a raw batch begins behind it.
            may_part = parted + 2 <= PARTED_FILES + sent_bytes // PARTED_BYTES
            sent_bytes += len(piece.batches)
            kind = Kind.RAW if piece.kind is Kind.RAW else Kind.ROWS
            if segment is not None and not segment.takes(piece, may_part=may_part):
                position, segment, parted = self._commit(place, segment), None, parted + 1
                kind = kind if may_part else Kind.RAW
            segment = segment or self._begun(place, position, kind, piece)
            segment.add(piece)
            if (
                self.is_over()
                or max(segment.sent_bytes, segment.writer.size) >= segment_bytes
                or segment.record_count >= SEGMENT_RECORDS_MAX
            ):
                position, segment = self._commit(place, segment), None
                if self.is_over():
                    break
        return position if segment is None else self._commit(place, segment)

    def seal_undecided(
        self,
        place: SealedPartition,
        sealed_end: int,
        end: int,
        segment_bytes: int,
        known_end: int = 0,
    ) -> int:
        """Seal what lies in [sealed_end, end), whether decided or not, as it was sent.

        Returns the offset up to which it did. `known_end` is the shard's. Raises Gone, StoreError,
        PeerError.
        """
        position = sealed_end
        for each in self.manifest.undecided(place.number, sealed_end):
            position = each.end_offset
        if position > max(sealed_end, known_end):
            self.manifest.sync()  # As in `_resume`.
            self.shard.sealed(place.number, position, is_decided=False)
        segment: _Open | None = None
        for piece in self._pieces_as_sent(place.number, position, end, segment_bytes):
            if segment is None:
                writer = RawWriter(self.room, as_sent=True)
                segment = _Open(position, Kind.RAW, writer, log_append_time=False)
            segment.add(piece)
            position = piece.end_offset
            if segment.writer.size >= min(segment_bytes, SEGMENT_BYTES_MAX):
                self._commit_undecided(place, segment)
                segment = None
        if segment is not None:
            self._commit_undecided(place, segment)
        return position

    def _pieces_as_sent(
        self, number: int, position: int, end: int, bytes_max: int
    ) -> Iterator[Piece]:
        while position < end:
            batches = self.shard.as_sent(number, position, min(CHUNK_BYTES, bytes_max))
            if not batches:
                return
            for piece in cut(batches):
                yield piece.since(position)
                position = piece.end_offset

    def _commit_undecided(self, place: SealedPartition, segment: _Open) -> None:
        line = replace(self._put(place, segment), kind=UNDECIDED)
        name_all(self.manifest, line.path, segment.payloads)
        if not self.manifest.commit_undecided(line):
            self.store.delete(line.path)
            raise Gone
        self.shard.sealed(place.number, line.end_offset, is_decided=False)

    def _start_at(self, number: int, log_start: int) -> None:
        """Records that were deleted before they were sealed leave a gap between segments: the
        manifest begins behind it before it shows, or readers find offsets that no segment has."""
        if log_start > self.manifest.log_start(number):
            self.manifest.set_log_start(number, log_start)

    def _resume(self, place: SealedPartition, sealed_end: int) -> int:
        """The manifest's sealed end; reports it to the shard if that is behind."""
        end = self.manifest.sealed_end(place.number)
        if end <= sealed_end:  # Retention may have raised the start since the order to seal.
            return max(sealed_end, self.manifest.log_start(place.number))
        self.manifest.sync()  # The shard frees its log, and the line may have been read too early.
        self.shard.sealed(place.number, end)
        return end

    def _pieces(self, number: int, position: int, end: int, bytes_max: int) -> Iterator[Piece]:
        undecided = Undecided(self.store, self.shard, self.manifest, self.staging)
        while position < end:
            batches = undecided.batches(number, position, end, bytes_max)
            if batches is None:
                batches = self.shard.batches(number, position, bytes_max)
            if not batches:
                return
            before = position
            for piece in cut(batches):
                yield piece.since(position)  # The log may start inside a batch.
                position = piece.end_offset
            assert position > before, "the shard gave batches below the offset it was asked for"

    def _begun(self, place: SealedPartition, position: int, kind: Kind, first: Piece) -> _Open:
        is_stamped = first.log_append_time
        writer = (
            RawWriter(self.room)
            if kind is Kind.RAW
            else parquet_writer(
                place, log_append_time=is_stamped, room=self.room, schema=self.schema
            )
        )
        return _Open(position, kind, writer, log_append_time=is_stamped)

    def _put(self, place: SealedPartition, segment: _Open) -> Segment:
        """Write a segment's file; returns its line."""
        data = segment.writer.finish(segment.base_offset, segment.end_offset)
        bytes_, committed_ms = read_only(data), self.wall_ms()

        def since_ms(time_ms: int) -> int:
            return time_ms if time_ms >= 0 else committed_ms

        key_of = partial(
            place.key, segment.base_offset, segment.end_offset, suffix=SUFFIXES[segment.kind]
        )
        attempt, key = put_file(self.store, key_of, data, self.draw())
        return Segment(
            partition_number=place.number,
            base_offset=segment.base_offset,
            end_offset=segment.end_offset,
            kind=KINDS[segment.kind],
            path=key,
            bytes=len(bytes_),
            crc32c=int(crc32c(bytes_, 0, len(bytes_))),
            record_count=segment.record_count,
            min_timestamp_ms=min(segment.times),
            max_timestamp_ms=max(segment.times),
            attempt=attempt,
            committed_ms=committed_ms,
            untyped_count=segment.writer.untyped_count,
            oldest_ms=min(since_ms(each) for each in segment.checked),
            newest_ms=max(since_ms(each) for each in segment.checked),
        )

    def _commit(self, place: SealedPartition, segment: _Open) -> int:
        line = self._put(place, segment)
        # A failure leaves the outcome unknown: keep the file; an uncommitted one is swept.
        name_all(self.manifest, line.path, segment.payloads)
        committed = self.manifest.commit_segments([line])
        if [each.path for each in committed] != [line.path]:
            self.store.delete(line.path)
        if not committed:
            raise Gone
        self.shard.sealed(place.number, segment.end_offset)
        return segment.end_offset


def put_file(
    store: Store, key_of: Callable[[int], str], data: Data, attempt: int
) -> tuple[int, str]:
    """Write a segment's file under a name that nothing else ever has: (attempt, key).

    `attempt` is drawn at random. The line may reach the manifest long after its sealer has given it
    up: a second file of the same name would then be taken for the first.
    Raises Unavailable if the name cannot be had: a file is where a directory should be.
    """
    key = key_of(attempt)
    try:
        store.put(key, data)
    except AlreadyExists as reason:
        problem = "its name cannot be had: is a file where a directory should be?"
        raise Unavailable(key, problem) from reason
    return attempt, key
