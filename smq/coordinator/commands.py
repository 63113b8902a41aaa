"""What our own processes ask of the coordinator: the FOR_COORDINATOR of smq.wire.internal.messages.

What cannot be done is answered Failed. An answer goes out after its change is durable.
"""

from collections.abc import Callable, Mapping
from typing import Any

from smq.coordinator.coordinator import Coordinator
from smq.coordinator.inputs import Now
from smq.model.errors import PeerError, PreconditionFailed
from smq.model.segments import Segment
from smq.wire.internal.form import Failed, Question, decode_question
from smq.wire.internal.messages import (
    FOR_COORDINATOR,
    CommitSegments,
    DeleteSegments,
    EnsureTopics,
    ListSegments,
    ReplaceSegments,
    SegmentPage,
    SetLogStart,
)

LIST_SEGMENTS_MAX = 500  # Of one answer: costs the loop some milliseconds.


def execute(body: bytes, coordinator: Coordinator, now: Now) -> object:
    """Do what a frame's body asks for; returns the answer."""
    try:
        question = decode_question(body, FOR_COORDINATOR)
        return HANDLERS[type(question)](question, coordinator, now)
    except (PeerError, PreconditionFailed) as reason:
        return Failed(str(reason))


def _list_segments(question: ListSegments, coordinator: Coordinator, _now: Now) -> SegmentPage:
    manifest, number = coordinator.store.manifest, question.number
    segments = manifest.segments(number, question.from_offset, count_max=LIST_SEGMENTS_MAX)
    return SegmentPage(manifest.log_start(number), segments)


def _commit_segments(
    question: CommitSegments, coordinator: Coordinator, _now: Now
) -> list[Segment]:
    manifest = coordinator.store.manifest
    return manifest.commit_segments(question.segments, question.payloads)


def _delete_segments(question: DeleteSegments, coordinator: Coordinator, _now: Now) -> bool:
    coordinator.store.manifest.delete_segments(question.number, question.base_offsets)
    return True


def _replace_segments(question: ReplaceSegments, coordinator: Coordinator, _now: Now) -> bool:
    manifest = coordinator.store.manifest
    return manifest.replace_segments(question.old, question.new, question.now_ms)


def _set_log_start(question: SetLogStart, coordinator: Coordinator, _now: Now) -> bool:
    coordinator.store.manifest.set_log_start(question.number, question.offset)
    return True


def _ensure_topics(
    question: EnsureTopics, coordinator: Coordinator, now: Now
) -> dict[str, str | None]:
    return coordinator.topics.ensure(question.names, now)


HANDLERS: Mapping[type[Question[Any]], Callable[[Any, Coordinator, Now], object]] = {
    ListSegments: _list_segments,
    CommitSegments: _commit_segments,
    DeleteSegments: _delete_segments,
    ReplaceSegments: _replace_segments,
    SetLogStart: _set_log_start,
    EnsureTopics: _ensure_topics,
}
