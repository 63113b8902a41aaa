"""Decides which files a table lacks compared with the manifest, and which it must drop. No IO.

    rearranged   files that hold exactly the rows of the files they replace: a merge
    changed      files that replace some with other rows: compaction; files that go: retention
    added        files beyond what the table has, oldest first, at most this many

Each is one commit, in this order. One commit removes a replaced file and adds its replacement, so
no snapshot has a record twice, or lacks one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from smq.model.segments import Segment

ADDED_MAX = 500  # Files of one commit: their footers are read for it.
_KEY = re.compile(r".*/partition=(\d+)/(\d{20})-(\d+)-\d+\.parquet")


class Range(NamedTuple):
    """The offsets of a segment, from the name of its file."""

    partition: int
    base_offset: int
    end_offset: int

    def holds(self, other: "Range") -> bool:
        """Whether the other range lies in this one."""
        return (
            self.partition == other.partition
            and self.base_offset <= other.base_offset
            and other.end_offset <= self.end_offset
        )


def range_of(key: str) -> Range | None:
    """The range in the name of a Parquet segment; None: it is no such name."""
    matched = _KEY.fullmatch(key)
    return None if matched is None else Range(*map(int, matched.groups()))


class NewFile(NamedTuple):
    """A segment to add, and its partition."""

    partition: int
    segment: Segment

    @property
    def range(self) -> Range:
        return Range(self.partition, self.segment.base_offset, self.segment.end_offset)


Lines = Mapping[int, Sequence[Segment]]
"""A topic's segments by partition, in order of offsets, raw ones too."""


@dataclass(frozen=True, slots=True)
class Change:
    """One commit. `rows_differ`: readers of changes must see it.

    `ends` are the offsets up to which the table has each partition after it.
    """

    removed: list[str] = field(default_factory=list)
    added: list[NewFile] = field(default_factory=list)
    rows_differ: bool = True
    ends: dict[int, int] = field(default_factory=dict)


def changes(
    lines: Lines, held: Mapping[str, int], added_max: int = ADDED_MAX
) -> tuple[list[Change], bool]:
    """The commits that a table needs, and whether more files wait beyond `added_max`.

    `held` are the table's files by key, with their rows.
    """
    wanted = {
        segment.path: NewFile(partition, segment)
        for partition, segments in sorted(lines.items())
        for segment in segments
        if segment.kind == "parquet"
    }
    surplus = {key: place for key in sorted(held) if key not in wanted and (place := range_of(key))}
    missing = [new for key, new in wanted.items() if key not in held]
    rearranged, changed, added = Change(rows_differ=False), Change(), Change()
    for new in missing:
        replaced = [key for key, place in surplus.items() if new.range.holds(place)]
        if not replaced:
            added.added.append(new)
            continue
        is_same = sum(held[key] for key in replaced) == new.segment.record_count
        group = rearranged if is_same else changed
        group.added.append(new)
        group.removed.extend(replaced)
        for key in replaced:
            del surplus[key]
    changed.removed.extend(surplus)
    has_more = len(added.added) > added_max
    del added.added[added_max:]
    return _with_ends(lines, held, [rearranged, changed, added]), has_more


def _with_ends(lines: Lines, held: Mapping[str, int], planned: list[Change]) -> list[Change]:
    """The commits that change something, each with the ends after it."""
    kept, now = [], set(held)
    for change in planned:
        if change.removed or change.added:
            now = now.difference(change.removed) | {new.segment.path for new in change.added}
            change.ends.update(ends(lines, now))
            kept.append(change)
    return kept


def ends(lines: Lines, held: set[str]) -> dict[int, int]:
    """The end of each partition in a table with these files. Raw segments are skipped over."""
    reached = {}
    for partition, segments in lines.items():
        reached[partition] = segments[0].base_offset if segments else 0
        for segment in segments:
            if segment.kind == "parquet" and segment.path not in held:
                break
            reached[partition] = segment.end_offset
    return reached


def raw_records(lines: Lines) -> int:
    """The records that no table can have: those in raw segments."""
    return sum(
        segment.record_count
        for segments in lines.values()
        for segment in segments
        if segment.kind == "raw"
    )
