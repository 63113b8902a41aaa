"""The manifest: which sealed segments hold which records. Any process may read it.

    with open_manifest(data_dir / "store.sqlite") as manifest:
        for topic in manifest.topics():
            for number in topic.partition_numbers:
                manifest.segments(number), manifest.log_start(number)

A reader sees the coordinator's last commit, whether or not the broker runs. It may not be durable
yet: whoever does what outlives a power loss asks the coordinator before (SyncManifest).
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from types import TracebackType
from typing import Protocol

from smq.model.catalog import Topic
from smq.model.errors import PreconditionFailed
from smq.model.segments import UNDECIDED, Segment
from smq.store.condemned_payloads import CondemnedPayloads
from smq.store.database import Database
from smq.store.deleted_topics import NAMESPACE as DELETED
from smq.store.payload_names import PayloadNames
from smq.store.stored_topics import stored_topics

SEGMENT_KINDS = ("parquet", "raw")
IDS_MAX = 500  # Parameters of one query; SQLite accepts at least 999.
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
REPLACED_KEEP_MS = 30 * 24 * 3600 * 1000  # Longer than a query takes; filer.sweep.ms is less.
PAGE_SEGMENTS = 64  # Rows that `walk` reads at a time.
# The sealer kills a worker after minutes without progress, so a line is never this far behind.
CONDEMNED_MAX = 100_000
CONDEMNED_PAGE = 2000  # Payloads, of which a page of the filer's list may have 500.

# A partition's segments do not overlap and are sorted by their primary key, so the segment with an
# offset is the last that begins at or before it. A query costs what it finds, not what exists;
# except with `newest_ms`, where SQLite scans the segments between.
SEGMENTS_SQL = """
    SELECT * FROM segments
    WHERE partition_number = ?1
        AND base_offset >= coalesce(
            (SELECT max(base_offset) FROM segments
                WHERE partition_number = ?1 AND base_offset <= ?2), ?2)
        AND end_offset > ?2
        AND max_timestamp_ms >= ?3
    ORDER BY base_offset LIMIT ?4
"""
UNDECIDED_SQL = """
    SELECT * FROM undecided_segments
    WHERE partition_number = ? AND end_offset > ? ORDER BY base_offset LIMIT ?
"""
SEALED_BYTES_SQL = """
    SELECT coalesce(sum(bytes), 0) FROM (
        SELECT bytes FROM segments WHERE partition_number = ?1 AND end_offset <= ?2
        UNION ALL
        SELECT bytes FROM undecided_segments
        WHERE partition_number = ?1 AND base_offset >= ?2 AND end_offset <= ?3
    )
"""
STORED_SQL = """
    SELECT count(*), coalesce(sum(bytes), 0) FROM (
        SELECT bytes FROM segments WHERE partition_number = ?1 AND base_offset < ?2
        UNION ALL
        SELECT bytes FROM undecided_segments WHERE partition_number = ?1 AND base_offset < ?2
    )
"""
RECORDS_SQL = """
    SELECT coalesce(sum(min(record_count, end_offset - max(base_offset, ?2))), 0),
        min(min_timestamp_ms), coalesce(max(end_offset), ?2)
    FROM segments WHERE partition_number = ?1 AND end_offset > ?2
"""
SEALED_END_SQL = """
    SELECT end_offset FROM segments WHERE partition_number = ?
    ORDER BY base_offset DESC LIMIT 1
"""


class Lines(Protocol):
    """The part of a manifest that `walk` needs."""

    def segments(
        self,
        partition_number: int,
        from_offset: int = 0,
        *,
        newest_ms: int = INT64_MIN,
        count_max: int = -1,
    ) -> list[Segment]: ...


def walk(
    manifest: Lines,
    partition_number: int,
    from_offset: int = 0,
    *,
    newest_ms: int = INT64_MIN,
    page: int = PAGE_SEGMENTS,
) -> Iterator[Segment]:
    """A partition's segments as `Manifest.segments` returns them, read page by page as needed."""
    while True:
        segments = manifest.segments(
            partition_number, from_offset, newest_ms=newest_ms, count_max=page
        )
        yield from segments
        if len(segments) < page:
            return
        assert segments[-1].end_offset > from_offset, "each page ends behind the one before"
        from_offset = segments[-1].end_offset


class Manifest:
    """Topics, and the segments of their partitions, by partition number."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def topics(self) -> list[Topic]:
        """Every topic, sorted by namespace and name."""
        return stored_topics(self._database)

    def has_topic(self, namespace: str, name: str) -> bool:
        """Whether the topic exists."""
        question = "SELECT 1 FROM topics WHERE namespace = ? AND name = ?"
        return bool(self._database.rows(question, (namespace, name)))

    def segments(
        self,
        partition_number: int,
        from_offset: int = 0,
        *,
        newest_ms: int = INT64_MIN,
        count_max: int = -1,
    ) -> list[Segment]:
        """The segments that hold records at or after `from_offset`, in order.

        Only those whose newest record is at `newest_ms` or later, at most `count_max` (-1: all).
        `walk` reads them page by page.
        """
        rows = self._database.rows(
            SEGMENTS_SQL, (partition_number, from_offset, newest_ms, count_max)
        )
        return [Segment(*row) for row in rows]

    def records(self, partition_number: int, from_offset: int) -> tuple[int, int | None, int]:
        """Of the sealed records from an offset on: how many they are, the earliest time in their
        files (None: there are none), and the offset behind them."""
        [found] = self._database.rows(RECORDS_SQL, (partition_number, from_offset))
        return found[0], found[1], found[2]

    def sealed_end(self, partition_number: int) -> int:
        """The end offset of the partition's last segment; 0 if there is none."""
        rows = self._database.rows(SEALED_END_SQL, (partition_number,))
        return int(rows[0][0]) if rows else 0

    def undecided(
        self, partition_number: int, from_offset: int = 0, count_max: int = -1
    ) -> list[Segment]:
        """The undecided segments with batches at or after `from_offset`, in order.

        They hold batches as they were sent, which the log has no more, behind the sealed end: some
        lie under an open transaction. The last segment may reach into the first of them.
        """
        rows = self._database.rows(UNDECIDED_SQL, (partition_number, from_offset, count_max))
        return [Segment(*row) for row in rows]

    def sealed_bytes(
        self, partition_number: int, end_offset: int = INT64_MAX, undecided_end: int = 0
    ) -> int:
        """The size of a partition's segments that end at this offset or before, and of its
        undecided segments between there and `undecided_end`."""
        asked = partition_number, end_offset, undecided_end
        return int(self._database.rows(SEALED_BYTES_SQL, asked)[0][0])

    def stored(self, partition_number: int, end: int = INT64_MAX) -> tuple[int, int]:
        """The number and the bytes of all segments that begin below an offset, undecided ones too.

        SQLite scans all of the partition.
        """
        [(count, size)] = self._database.rows(STORED_SQL, (partition_number, end))
        return int(count), int(size)

    def untyped(self, partition_number: int) -> int:
        """The number of sealed records whose value does not fit the topic's schema."""
        [(count,)] = self._database.rows(
            "SELECT coalesce(sum(untyped_count), 0) FROM segments WHERE partition_number = ?",
            (partition_number,),
        )
        return int(count)

    def named_files(self, paths: Sequence[str]) -> set[str]:
        """Those of these paths that are segments of any partition, undecided ones too."""
        found = self._among("SELECT path FROM segments WHERE path IN", paths)
        return found | self._among("SELECT path FROM undecided_segments WHERE path IN", paths)

    def replaced_files(self, paths: Sequence[str], since_ms: int) -> set[str]:
        """Those of these paths that were segments until other ones replaced them since a time."""
        question = "SELECT path FROM replaced_files WHERE replaced_ms >= ? AND path IN"
        return self._among(question, paths, since_ms)

    def log_start(self, partition_number: int) -> int:
        """The log start offset that retention has set; 0: none, or no such partition."""
        rows = self._database.rows(
            "SELECT log_start_offset FROM partitions WHERE number = ?", (partition_number,)
        )
        return int(rows[0][0]) if rows else 0

    def named_payloads(self, ids: Sequence[str]) -> set[str]:
        """Those of these payloads that records in segments refer to."""
        return self._among("SELECT DISTINCT id FROM payload_names WHERE id IN", ids)

    def condemned_payloads(self, keys: Sequence[str]) -> set[str]:
        """Those of these payloads that no new record may name, as they are being deleted."""
        return self._among("SELECT key FROM condemned_payloads WHERE key IN", keys)

    def condemned_between(self, after: str, last: str | None, before_ms: int) -> list[str]:
        """Some of these payloads with keys above `after`, up to `last` (None: all others), that
        have been condemned since `before_ms` at least."""
        rows = self._database.rows(
            "SELECT key FROM condemned_payloads WHERE key > ? AND (? IS NULL OR key <= ?) "
            "AND since_ms <= ? ORDER BY key LIMIT ?",
            (after, last, last, before_ms, CONDEMNED_PAGE),
        )
        return [key for (key,) in rows]

    def payloads_of(self, paths: Sequence[str]) -> Iterator[list[str]]:
        """The payloads that the records of these segments' files name, in portions."""
        return PayloadNames(self._database).of(paths)

    def _among(self, question: str, values: Sequence[str], *others: int) -> set[str]:
        """Those of these values that a query finds; `others` are its parameters before them."""
        found: set[str] = set()
        for first in range(0, len(values), IDS_MAX):
            some = values[first : first + IDS_MAX]
            marks = ",".join("?" * len(some))
            found.update(
                each for (each,) in self._database.rows(f"{question} ({marks})", (*others, *some))
            )
        return found

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def __enter__(self) -> "Manifest":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class WritableManifest(Manifest):
    """The coordinator's side. A file's payloads are named before its line is added."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.names = PayloadNames(database)
        self.condemned = CondemnedPayloads(database)

    def sync(self) -> None:
        """Have the next commit make durable all that shows now."""
        self._database.sync_next()

    def condemn_payloads(self, keys: Sequence[str], now_ms: int, settle_ms: int) -> list[str]:
        """Condemn payloads; returns those that have been so for `settle_ms`."""
        return self.condemned.add(keys, now_ms, settle_ms)

    def forget_payloads(self, keys: Sequence[str]) -> None:
        """These payloads are deleted."""
        self.condemned.forget(keys)

    def name_payloads(self, path: str, ids: Sequence[str]) -> None:
        """The records of a file that will be a segment name these payloads.

        Raises PreconditionFailed when it is condemned.
        """
        if self._is_condemned(path):
            raise _condemned(path)
        self.names.add(path, ids)

    def commit_segments(self, segments: list[Segment]) -> list[Segment]:
        """Add segments, all or none; returns what the manifest then holds for their offsets.

        Repeating a commit is harmless: an existing segment of the same partition, base and end
        stays, and the caller deletes its own file. Skips segments of deleted partitions. Raises
        PreconditionFailed when one overlaps another, or its file is condemned.
        """
        self._database.change("SAVEPOINT segments")
        try:
            committed = [self._commit_segment(each) for each in segments]
        except PreconditionFailed:
            self._database.change("ROLLBACK TO segments")
            raise
        finally:
            self._database.change("RELEASE segments")
        found = [each for each in committed if each is not None]
        self.names.let_go({each.path for each in segments} - {each.path for each in found})
        return found

    def _commit_segment(self, segment: Segment) -> Segment | None:
        assert segment.base_offset < segment.end_offset, segment
        assert segment.kind in SEGMENT_KINDS, segment
        number = segment.partition_number
        if not self._has_partition(number):
            return None
        # All later segments begin after it.
        for other in self.segments(number, segment.base_offset, count_max=1):
            if (other.base_offset, other.end_offset) == (segment.base_offset, segment.end_offset):
                return other
            if other.base_offset < segment.end_offset:
                raise PreconditionFailed(segment.path, f"overlaps {other.path} in the manifest")
        if self._is_condemned(segment.path):
            raise _condemned(segment.path)
        self._database.change(
            "INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            astuple(segment),
        )
        return segment

    def commit_undecided(self, segment: Segment) -> bool:
        """Add an undecided segment; False: its partition was deleted.

        Repeating it is harmless. Raises PreconditionFailed when a segment of either kind has some
        of its offsets, or its file is condemned.
        """
        assert segment.kind == UNDECIDED, segment
        number, base = segment.partition_number, segment.base_offset
        if not self._has_partition(number):
            self.names.let_go([segment.path])
            return False
        there = self.undecided(number, base)
        if segment in there:
            return True
        if there or self.sealed_end(number) > base:
            self.names.let_go([segment.path])
            raise PreconditionFailed(segment.path, "others hold its offsets by now")
        if self._is_condemned(segment.path):
            raise _condemned(segment.path)
        self._database.change(
            "INSERT INTO undecided_segments "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            astuple(segment),
        )
        return True

    def drop_decided(self, partition_number: int, now_ms: int) -> None:
        """Drop the undecided segments whose offsets are all sealed otherwise, or deleted.

        Their files are `replaced_files` from then on: readers may have their names.
        """
        end = max(self.sealed_end(partition_number), self.log_start(partition_number))
        rows = self._database.rows(
            "SELECT path FROM undecided_segments WHERE partition_number = ? AND end_offset <= ?",
            (partition_number, end),
        )
        paths = [path for (path,) in rows]
        if not paths:
            return
        self._note_replaced(paths, now_ms)
        self._database.change_many(
            "DELETE FROM undecided_segments WHERE path = ?", [(path,) for path in paths]
        )
        self.names.may_have_gone = True

    def _has_partition(self, number: int) -> bool:
        question = (
            "SELECT 1 FROM partitions JOIN topics ON topics.id = topic_id "
            "WHERE number = ? AND namespace != ?"
        )
        return bool(self._database.rows(question, (number, DELETED)))

    def _is_condemned(self, path: str) -> bool:
        return bool(self._database.rows("SELECT 1 FROM condemned_files WHERE path = ?", (path,)))

    def condemn_files(self, paths: Sequence[str]) -> list[str]:
        """Condemn those of these files that are no segments; returns them.

        No line may name them from then on, so they may be deleted. A line may have been on its way
        when its sealer gave it up: it comes after the file has gone, and must not free the log.
        """
        named = self.named_files(paths)
        condemned = [path for path in paths if path not in named]
        self._database.change_many(
            "INSERT OR REPLACE INTO condemned_files (path) VALUES (?)",
            [(path,) for path in condemned],
        )
        self._database.change(
            "DELETE FROM condemned_files WHERE number <= "
            "(SELECT max(number) FROM condemned_files) - ?",
            (CONDEMNED_MAX,),
        )
        self.names.let_go(condemned)
        return condemned

    def replace_segments(self, old: Sequence[Segment], new: Segment, *, now_ms: int = 0) -> bool:
        """Have `new` in place of its neighbours `old`, whose records it holds: all or nothing.

        Their files are no segments any more, and are `replaced_files` from `now_ms` on, for
        REPLACED_KEEP_MS.
        Repeating it is harmless. False: the partition was deleted. Raises PreconditionFailed when
        the manifest does not have exactly `old` there, or the new file is condemned.
        """
        number, begin, end = new.partition_number, new.base_offset, new.end_offset
        assert (old[0].base_offset, old[-1].end_offset) == (begin, end), "the same offsets"
        if not self._has_partition(number):
            self.names.let_go([new.path])
            return False
        found = self.segments(number, begin, count_max=len(old) + 1)
        found = [each for each in found if each.base_offset < end]
        if found == [new]:
            return True
        if found != list(old):
            raise PreconditionFailed(
                new.path, "the segments that it replaces are no longer in the manifest"
            )
        self._database.change("SAVEPOINT replacing")
        try:
            self._replace(old, new, now_ms)
        except BaseException:
            self._database.change("ROLLBACK TO replacing")
            raise
        finally:
            self._database.change("RELEASE replacing")
        return True

    def _replace(self, old: Sequence[Segment], new: Segment, now_ms: int) -> None:
        self.delete_segments([each.path for each in old])
        committed = self._commit_segment(new)
        assert committed == new, "its place is free"
        self._note_replaced([each.path for each in old], now_ms)

    def _note_replaced(self, paths: Sequence[str], now_ms: int) -> None:
        self._database.change(
            "DELETE FROM replaced_files WHERE replaced_ms < ?", (now_ms - REPLACED_KEEP_MS,)
        )
        self._database.change_many(
            "INSERT OR REPLACE INTO replaced_files VALUES (?, ?)",
            [(path, now_ms) for path in paths],
        )

    def delete_segments(
        self, paths: Sequence[str], *, are_replaced: bool = False, now_ms: int = 0
    ) -> None:
        """Remove the segments in these files; ignores those that do not exist.

        A file's name is of one segment, an offset is not: an order that comes late must not remove
        the segment that has taken the place of another.
        If they `are_replaced`, their files are `replaced_files` from `now_ms` on.
        """
        if are_replaced:
            self._note_replaced(sorted(self.named_files(paths)), now_ms)
        self._database.change_many(
            "DELETE FROM segments WHERE path = ?", [(path,) for path in paths]
        )
        self.names.may_have_gone = True

    def set_log_start(self, partition_number: int, offset: int) -> None:
        """Raise a partition's log start offset; never lowers it."""
        self._database.change(
            "UPDATE partitions SET log_start_offset = ? WHERE number = ? AND log_start_offset < ?",
            (offset, partition_number, offset),
        )


def _condemned(path: str) -> PreconditionFailed:
    return PreconditionFailed(path, "was swept: its line comes too late")


def open_manifest(path: Path) -> Manifest:
    """The manifest in the SQL store at `path`, read-only. Raises StoreError."""
    return Manifest(Database.open_read_only(path))
