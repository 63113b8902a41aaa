"""Fakes of the sealer's ports, and a kill that may strike at any step."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from shm.arrow import read_only
from shm.kernels.record.records import (
    B_AT,
    B_END,
    B_LAST_OFFSET,
    B_MAX_TIMESTAMP,
    new_facts,
    scan_batches,
)
from smq.model.errors import Unavailable
from smq.model.segments import Segment
from smq.store.manifest import WritableManifest
from smq.wire.internal.messages import Ends, UnsealedPart, UnsealedParts

REPLACED_MS = 1


class Killed(BaseException):
    """The process ended here."""


_drawn = count(1000)


def draw() -> int:
    """A number for a file's name; none comes twice."""
    return next(_drawn)


class Fuse:
    """Counts steps; kills the process before or after the step that it is set for."""

    def __init__(self, steps: int = -1, *, after: bool = False) -> None:
        self._steps, self._after = steps, after
        self.taken = 0

    def step(self, action: Callable[[], Any]) -> Any:  # noqa: ANN401  (whatever it returns)
        """Take a step, or half of it."""
        self.taken += 1
        if self.taken == self._steps and not self._after:
            raise Killed
        result = action()
        if self.taken == self._steps:
            raise Killed
        return result


class FakeShard:
    """One partition's log: consecutive batches, freed as they are sealed.

    aborted_rows   what `aborted` tells of; `batches` does not leave them out
    stable_end     below it all is decided; None: so is all that there is
    """

    def __init__(self, batches: list[bytes], fuse: Fuse | None = None) -> None:
        self.aborted_rows: list[tuple[int, int, int]] = []
        self._log = b"".join(batches)
        self.fuse = fuse or Fuse()
        self.sealed_end = self.decided_end = self.start = self.compacted_end = 0
        self.stable_end: int | None = None
        self.asked = 0

    @property
    def end(self) -> int:
        """The offset after the last record."""
        if not self._log:
            return 0
        facts = new_facts(len(self._log))
        count = scan_batches(read_only(self._log), 0, len(self._log), facts)
        return int(facts[B_LAST_OFFSET, count - 1]) + 1

    def append(self, batch: bytes) -> None:
        """Add a batch."""
        self._log += batch

    def batches(
        self,
        number: int,
        offset: int,
        bytes_max: int,
        *,
        synced: bool = True,  # noqa: ARG002
    ) -> bytes:
        """Whole batches from the one that holds `offset` on."""
        self.asked += 1
        if offset < self.sealed_end:
            raise Unavailable(f"partition {number}", f"offset {offset} has left the log")
        facts = new_facts(len(self._log))
        count = scan_batches(read_only(self._log), 0, len(self._log), facts)
        found = b""
        for batch in facts[:, :count].T.tolist():
            data = self._log[batch[B_AT] : batch[B_END]]
            if batch[B_LAST_OFFSET] >= offset and (not found or len(found + data) <= bytes_max):
                found += data
        return found

    def tail(self, number: int, offset: int, bytes_max: int) -> bytes:
        """As `batches`, including those that are not visible yet."""
        return FakeShard.batches(self, number, offset, bytes_max)

    def as_sent(self, number: int, offset: int, bytes_max: int) -> bytes:
        """As `batches`, including aborted ones."""
        return FakeShard.batches(self, number, offset, bytes_max)

    def aborted(
        self,
        number: int,  # noqa: ARG002
        start: int,
        end: int,
        producers: list[int],
    ) -> list[tuple[int, int, int]]:
        """Those of some producers that overlap a range."""
        rows = [row for row in self.aborted_rows if row[1] < end and row[2] >= start]
        return [row for row in rows if row[0] in producers]

    def sealed(self, number: int, end: int, *, is_decided: bool = True) -> None:  # noqa: ARG002
        """Everything below `end` is sealed."""

        def move() -> None:
            self.sealed_end = max(self.sealed_end, end)
            if is_decided:
                self.decided_end = max(self.decided_end, end)

        self.fuse.step(move)

    def compacted(self, number: int, end: int) -> None:  # noqa: ARG002
        """Everything below `end` is about to be compacted."""
        self.fuse.step(lambda: setattr(self, "compacted_end", max(self.compacted_end, end)))

    def log_start(self, number: int, offset: int) -> None:  # noqa: ARG002
        """Records below `offset` are deleted, and need not be sealed: see SealedEnds."""

        def move() -> None:
            self.start = max(self.start, offset)
            self.sealed_end = max(self.sealed_end, self.start)
            self.decided_end = max(self.decided_end, self.start)

        self.fuse.step(move)

    def unsealed(self, number: int) -> UnsealedParts:  # noqa: ARG002
        """Each batch is a full segment of this log."""
        facts = new_facts(len(self._log))
        count = scan_batches(read_only(self._log), 0, len(self._log), facts)
        rows = facts[[B_LAST_OFFSET, B_MAX_TIMESTAMP, B_AT, B_END], :count].T.tolist()
        parts = [UnsealedPart(last + 1, newest_ms, end - at) for last, newest_ms, at, end in rows]
        parts = [part for part in parts if part.end_offset > self.sealed_end]
        size = sum(part.bytes for part in parts)
        ends = self.sealed_end, self.end if self.stable_end is None else self.stable_end
        return UnsealedParts(self.decided_end, size, parts, *ends)

    def ends(self, number: int) -> Ends:  # noqa: ARG002
        """Up to where it is sealed, and where it ends."""
        return Ends(self.sealed_end, self.end)


class FusedManifest:
    """A manifest port whose calls may kill the process; the coordinator's time is `now_ms`."""

    def __init__(
        self, manifest: WritableManifest, fuse: Fuse | None = None, now_ms: int = 0
    ) -> None:
        self._manifest, self.fuse, self._now_ms = manifest, fuse or Fuse(), now_ms
        self.segments, self.log_start = manifest.segments, manifest.log_start
        self.named_payloads, self.payloads_of = manifest.named_payloads, manifest.payloads_of
        self.has_topic, self.condemned_payloads = manifest.has_topic, manifest.condemned_payloads
        self.undecided = manifest.undecided
        self.sealed_end, self.sealed_bytes = manifest.sealed_end, manifest.sealed_bytes
        self.named_files, self.replaced_files = manifest.named_files, manifest.replaced_files
        self.condemned_between, self.sync = manifest.condemned_between, manifest.sync

    def name_payloads(self, path: str, ids: Sequence[str]) -> None:
        """Name payloads of a file."""
        self.fuse.step(lambda: self._manifest.name_payloads(path, ids))

    def commit_segments(self, segments: list[Segment]) -> list[Segment]:
        """Add these, and drop the undecided ones below them, as the coordinator does."""

        def commit() -> list[Segment]:
            committed = self._manifest.commit_segments(segments)
            for each in committed:
                self._manifest.drop_decided(each.partition_number, REPLACED_MS)
            return committed

        committed: list[Segment] = self.fuse.step(commit)
        return committed

    def commit_undecided(self, segment: Segment) -> bool:
        """Add an undecided one."""
        is_done: bool = self.fuse.step(lambda: self._manifest.commit_undecided(segment))
        return is_done

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> bool:
        """Replace segments by one."""
        now_ms = self._now_ms
        is_done: bool = self.fuse.step(
            lambda: self._manifest.replace_segments(old, new, now_ms=now_ms)
        )
        return is_done

    def delete_segments(self, paths: Sequence[str], *, are_replaced: bool = False) -> None:
        """Remove these."""
        now_ms = self._now_ms
        self.fuse.step(
            lambda: self._manifest.delete_segments(paths, are_replaced=are_replaced, now_ms=now_ms)
        )

    def condemn_files(self, paths: Sequence[str]) -> list[str]:
        """Condemn these."""
        condemned: list[str] = self.fuse.step(lambda: self._manifest.condemn_files(paths))
        return condemned

    def condemn_payloads(self, keys: Sequence[str], now_ms: int, settle_ms: int) -> list[str]:
        """Condemn these."""
        settled: list[str] = self.fuse.step(
            lambda: self._manifest.condemn_payloads(keys, now_ms, settle_ms)
        )
        return settled

    def forget_payloads(self, keys: Sequence[str]) -> None:
        """Forget these."""
        self.fuse.step(lambda: self._manifest.forget_payloads(keys))

    def set_log_start(self, partition_number: int, offset: int) -> None:
        """Raise a partition's log start offset."""
        self.fuse.step(lambda: self._manifest.set_log_start(partition_number, offset))


class HangingManifest(FusedManifest):
    """A manifest whose lines show, and whose syncs do not return in time."""

    def __init__(self, manifest: WritableManifest) -> None:
        super().__init__(manifest)
        self.sync = self._hang

    def _hang(self) -> None:
        raise Unavailable("coordinator", "does not answer")
