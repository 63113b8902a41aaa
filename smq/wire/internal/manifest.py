"""Questions about the manifest, which the coordinator answers after the change is durable.

They may come long after their asker has given them up: a file's name never repeats, so each names
what it is about.
"""

from smq.model.frozen import frozen
from smq.model.segments import Segment
from smq.wire.internal.form import Question


@frozen
class SegmentPage:
    """A partition's log start and some of its segments, in order."""

    log_start: int
    segments: list[Segment]


@frozen
class ListSegments(Question[SegmentPage]):
    """Ask for a page of the segments with records at or after `from_offset`.

    After a full page the next begins at the end offset of the last.
    """

    number: int
    from_offset: int = 0


@frozen
class CommitSegments(Question[list[Segment]]):
    """Add segments to the manifest, all or none; answers the manifest's for their offsets.

    Repeating it is harmless: an existing segment is returned, and the caller deletes its own file.
    Skips segments of deleted topics. Fails on an overlap, and for a condemned file.
    """

    segments: list[Segment]


@frozen
class CommitUndecided(Question[bool]):
    """Add an undecided segment; False: the partition was deleted.

    Repeating it is harmless. Fails when others hold its offsets, and for a condemned file.
    """

    segment: Segment


@frozen
class NamePayloads(Question[bool]):
    """Note payloads that the records of a file name, some at a time, before it becomes a segment.

    Repeating it is harmless. Fails for a condemned file.
    """

    path: str
    ids: list[str]


@frozen
class DeleteSegments(Question[bool]):
    """Remove the segments in these files, and no others that may have their places by now.

    If they `are_replaced`, the files stay for a while, for a table names them: from when the
    coordinator does it, which may be long after it was asked.
    """

    paths: list[str]
    are_replaced: bool = False


@frozen
class CondemnFiles(Question[list[str]]):
    """Condemn those of these files that are no segments, before they are deleted; answers them.

    A line for a condemned file is refused, however late it comes.
    """

    paths: list[str]


@frozen
class CondemnPayloads(Question[list[str]]):
    """Condemn payloads, before they are deleted: no new record may name them.

    Answers those that have been condemned for `settle_ms`. Repeating it is harmless.
    """

    keys: list[str]
    now_ms: int
    settle_ms: int


@frozen
class ForgetPayloads(Question[bool]):
    """These condemned payloads are deleted."""

    keys: list[str]


@frozen
class ReplaceSegments(Question[bool]):
    """Replace the neighbours `old` by `new`; False: the partition was deleted.

    Repeating it is harmless. Fails unless the manifest has exactly these. They are replaced when
    the coordinator does it.
    """

    old: list[Segment]
    new: Segment


@frozen
class SetLogStart(Question[bool]):
    """Raise a partition's log start offset; it is never lowered."""

    number: int
    offset: int


@frozen
class SyncManifest(Question[bool]):
    """Answer once all that the store shows now is durable.

    A commit shows before its sync returns, so whoever read a line and is about to do what outlives
    a power loss asks this in between.
    """


FOR_MANIFEST = (
    ListSegments,
    NamePayloads,
    CommitSegments,
    CommitUndecided,
    DeleteSegments,
    CondemnFiles,
    CondemnPayloads,
    ForgetPayloads,
    ReplaceSegments,
    SetLogStart,
    SyncManifest,
)
