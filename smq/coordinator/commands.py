"""Serves our own processes' requests to the coordinator: FOR_COORDINATOR of
smq.wire.internal.messages.

A request that cannot be served is answered Failed. An answer goes out after its change is durable.
"""

from collections.abc import Callable, Mapping
from typing import Any

from smq.coordinator.coordinator import Coordinator
from smq.coordinator.group_events import HeldMember, Hold
from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.coordinator.transactions.waiting import StillEnding
from smq.model.errors import BrokerError, ErrorCode, PeerError, PreconditionFailed
from smq.model.group_protocols import SEAWEEDMQ, SHARING
from smq.model.now import Now
from smq.model.segments import Segment
from smq.wire.internal.form import Failed, Question, decode_question
from smq.wire.internal.groups import GroupHeld, HeldGroup, HoldGroups
from smq.wire.internal.manifest import (
    CommitSegments,
    CommitUndecided,
    CondemnFiles,
    CondemnPayloads,
    DeleteSegments,
    ForgetPayloads,
    ListSegments,
    NamePayloads,
    ReplaceSegments,
    SegmentPage,
    SetLogStart,
    SyncManifest,
)
from smq.wire.internal.messages import FOR_COORDINATOR, Audited, EnsureTopics
from smq.wire.internal.transactions import AddPartitions, FindTransactions

BYTES = "latin-1"
BEFORE_MAX = 1000
LIST_SEGMENTS_MAX = 500  # Per answer: costs the loop some milliseconds.


def execute(body: bytes, coordinator: Coordinator, now: Now, *, may_wait: bool = False) -> object:
    """Execute the request in a frame's body; returns the answer, or StillEnding if it `may_wait`
    and should."""
    try:
        question = decode_question(body, FOR_COORDINATOR)
        if may_wait and isinstance(question, AddPartitions):
            ending = question.transactional_id
            if coordinator.transactions.is_ending(ending):
                return StillEnding(ending)
        return HANDLERS[type(question)](question, coordinator, now)
    except (PeerError, PreconditionFailed) as reason:
        return Failed(str(reason))


def _list_segments(question: ListSegments, coordinator: Coordinator, _now: Now) -> SegmentPage:
    manifest, number = coordinator.store.manifest, question.number
    segments = manifest.segments(number, question.from_offset, count_max=LIST_SEGMENTS_MAX)
    return SegmentPage(manifest.log_start(number), segments)


def _commit_segments(question: CommitSegments, coordinator: Coordinator, now: Now) -> list[Segment]:
    manifest = coordinator.store.manifest
    committed = manifest.commit_segments(question.segments)
    for number in {each.partition_number for each in committed}:
        manifest.drop_decided(number, now.monotonic_ms)
    return committed


def _commit_undecided(question: CommitUndecided, coordinator: Coordinator, _now: Now) -> bool:
    return coordinator.store.manifest.commit_undecided(question.segment)


def _name_payloads(question: NamePayloads, coordinator: Coordinator, _now: Now) -> bool:
    coordinator.store.manifest.name_payloads(question.path, question.ids)
    return True


def _delete_segments(question: DeleteSegments, coordinator: Coordinator, now: Now) -> bool:
    manifest = coordinator.store.manifest
    # Not when it was asked: until now the manifest names them, and tables follow it.
    are_replaced, now_ms = question.are_replaced, now.monotonic_ms
    manifest.delete_segments(question.paths, are_replaced=are_replaced, now_ms=now_ms)
    return True


def _condemn_files(question: CondemnFiles, coordinator: Coordinator, _now: Now) -> list[str]:
    return coordinator.store.manifest.condemn_files(question.paths)


def _condemn_payloads(question: CondemnPayloads, coordinator: Coordinator, _now: Now) -> list[str]:
    manifest = coordinator.store.manifest
    return manifest.condemn_payloads(question.keys, question.now_ms, question.settle_ms)


def _forget_payloads(question: ForgetPayloads, coordinator: Coordinator, _now: Now) -> bool:
    coordinator.store.manifest.forget_payloads(question.keys)
    return True


def _replace_segments(question: ReplaceSegments, coordinator: Coordinator, now: Now) -> bool:
    manifest = coordinator.store.manifest
    return manifest.replace_segments(question.old, question.new, now_ms=now.monotonic_ms)


def _set_log_start(question: SetLogStart, coordinator: Coordinator, now: Now) -> bool:
    manifest = coordinator.store.manifest
    manifest.set_log_start(question.number, question.offset)
    manifest.drop_decided(question.number, now.monotonic_ms)
    return True


def _sync_manifest(
    question: SyncManifest,  # noqa: ARG001  (It says nothing more.)
    coordinator: Coordinator,
    _now: Now,
) -> bool:
    coordinator.store.manifest.sync()
    return True


def _ensure_topics(
    question: EnsureTopics, coordinator: Coordinator, now: Now
) -> dict[str, str | None]:
    return coordinator.topics.ensure(question.names, now)


def _add_partitions(question: AddPartitions, coordinator: Coordinator, now: Now) -> list[int]:
    transactions, places = coordinator.transactions, coordinator.topics.places
    producer = ProducerEpoch(question.producer_id, question.producer_epoch)
    there = frozenset(number for number in question.numbers if number in places)
    try:
        if not question.verify_only:
            transactions.add(question.transactional_id, producer, now, numbers=there)
            transactions.endings.note_implied(question.transactional_id)
        txn = transactions.verify(question.transactional_id, producer)
        transactions.note_written(txn, there, question.generation, now)
    except BrokerError as refusal:
        return [refusal.code] * len(question.numbers)
    outside = {
        number: ErrorCode.TRANSACTION_ABORTABLE
        if number in there
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for number in question.numbers
        if number not in txn.partitions
    }
    return [outside.get(number, ErrorCode.NONE) for number in question.numbers]


def _find_transactions(
    question: FindTransactions, coordinator: Coordinator, _now: Now
) -> list[bool]:
    transactions = coordinator.transactions
    return [transactions.has_open(ProducerEpoch(*each)) for each in question.producers]


def _audited(question: Audited, coordinator: Coordinator, _now: Now) -> bool:
    audit = coordinator.access.audit
    audit.acts += question.acts
    audit.passed_on += question.accesses
    return True


def _hold_groups(question: HoldGroups, coordinator: Coordinator, now: Now) -> list[GroupHeld]:
    return [_hold(each, question, coordinator, now) for each in question.groups]


def _hold(held: HeldGroup, question: HoldGroups, coordinator: Coordinator, now: Now) -> GroupHeld:
    groups = coordinator.groups
    group = groups.get(held.group_id)
    there = [*group.roster] if group is not None and held.generation < 0 else []
    hold = Hold(
        protocol_type=SEAWEEDMQ,
        protocol_name=SHARING,
        session_timeout_ms=question.session_timeout_ms,
        generation=held.generation,
        members=tuple(
            HeldMember(*each[:3], each.said.encode(BYTES), each.assignment.encode(BYTES))
            for each in held.members
        ),
        gone=tuple(held.gone),
    )
    try:
        groups.handle(held.group_id, hold, now)
    except BrokerError as refusal:
        return GroupHeld(refusal.code, -1, [])
    group = groups.find(held.group_id)
    before = [
        (each.metadata(SHARING).decode(BYTES), each.assignment.decode(BYTES))
        for each in there[:BEFORE_MAX]
        if each.member_id not in group.roster
    ]
    return GroupHeld(ErrorCode.NONE, group.generation, before)


HANDLERS: Mapping[type[Question[Any]], Callable[[Any, Coordinator, Now], object]] = {
    ListSegments: _list_segments,
    NamePayloads: _name_payloads,
    CommitSegments: _commit_segments,
    CommitUndecided: _commit_undecided,
    DeleteSegments: _delete_segments,
    CondemnFiles: _condemn_files,
    CondemnPayloads: _condemn_payloads,
    ForgetPayloads: _forget_payloads,
    ReplaceSegments: _replace_segments,
    SetLogStart: _set_log_start,
    SyncManifest: _sync_manifest,
    EnsureTopics: _ensure_topics,
    AddPartitions: _add_partitions,
    FindTransactions: _find_transactions,
    Audited: _audited,
    HoldGroups: _hold_groups,
}
