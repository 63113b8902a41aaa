"""Transactions: whose id, whose topics, whose group; and what is said of them."""

from typing import Any

from smq.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from smq.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from smq.wire.generated.describe_producers import DescribeProducersRequest, TopicRequest
from smq.wire.generated.describe_transactions import DescribeTransactionsRequest
from smq.wire.generated.end_txn import EndTxnRequest
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.list_transactions import ListTransactionsRequest
from smq.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from smq.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.oracle.batches import batch
from tests.oracle.dialogues.fetch import fill
from tests.oracle.dialogues.transactions import Who, open_
from tests.oracle.rights import asked
from tests.oracle.rights.cell import EXISTING, WORDS, Cell
from tests.oracle.rights.questions.data import begin, ends, found
from tests.oracle.rights.questions.groups import begun, committed

BATCHED = 4  # AddPartitionsToTxn: what brokers ask, several transactions at once.
DESCRIBE = 0
TIMEOUT_MS = 60_000
PAIRS = (("allowed", "allowed"), ("allowed", "denied"), ("denied", "allowed"))


@asked("InitProducerId", also=(3,), prepare=found)
def producer_ids(cell: Cell) -> None:
    cell.ask("no id", InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
    for word in EXISTING:
        name = cell.own(word)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
        cell.ask(f"the id {word}", request)


def adding(cell: Cell, who: Who, *words: str, verify: bool = False) -> Any:
    topics = [AddPartitionsToTxnTopic(name=cell.own(each), partitions=[0]) for each in words]
    return AddPartitionsToTxnTransaction(
        transactional_id=who.name,
        producer_id=who.id,
        producer_epoch=who.epoch,
        verify_only=verify,
        topics=topics,
    )


def opened(cell: Cell, word: str) -> list[str]:
    """The topics in the transaction of an id, by their words."""
    request = DescribeTransactionsRequest(transactional_ids=[cell.own(word)])
    [state] = cell.quietly(request, DESCRIBE).transaction_states
    names = [each.topic for each in state.topics]
    return [word for word in EXISTING if cell.own(word) in names]


@asked("AddPartitionsToTxn", until=BATCHED - 1, prepare=found)
def partitions(cell: Cell) -> None:
    for name, *words in (
        ("allowed", *WORDS),
        ("allowed", "allowed"),
        ("allowed", "denied"),
        ("denied", "allowed"),
    ):
        who = begin(cell, name)
        step = f"the id {name}, the topics {', '.join(words)}"
        cell.ask(step, AddPartitionsToTxnRequest(transactions=[adding(cell, who, *words)]))
        cell.note(f"{step}: added", opened(cell, name))


@asked("AddPartitionsToTxn", since=BATCHED, prepare=found)
def partitions_of_several(cell: Cell) -> None:
    for verify in (False, True):
        who = {name: begin(cell, name) for name in EXISTING}
        step = "verified" if verify else "added"
        both = [adding(cell, who[name], *WORDS, verify=verify) for name in EXISTING]
        cell.ask(f"all of both ids, {step}", AddPartitionsToTxnRequest(transactions=both))
        one = [adding(cell, who["allowed"], "allowed", verify=verify)]
        cell.ask(f"one, {step}", AddPartitionsToTxnRequest(transactions=one))
        cell.note(f"one, {step}: added", opened(cell, "allowed"))


@asked("AddOffsetsToTxn", prepare=found)
def offsets(cell: Cell) -> None:
    for name, group in PAIRS:
        who = begin(cell, name)
        request = AddOffsetsToTxnRequest(
            transactional_id=who.name,
            producer_id=who.id,
            producer_epoch=who.epoch,
            group_id=cell.own(group),
        )
        cell.ask(f"the id {name}, the group {group}", request)


@asked("EndTxn", also=(4,), prepare=found)
def endings(cell: Cell) -> None:
    for name in EXISTING:
        who = begin(cell, name)
        open_(cell, who, cell.own("denied"))
        request = EndTxnRequest(
            transactional_id=who.name,
            producer_id=who.id,
            producer_epoch=who.epoch,
            committed=True,
        )
        cell.ask(f"the id {name}", request)
        cell.note(f"the id {name}: still open", _is_open(cell, name))


def _is_open(cell: Cell, word: str) -> bool:
    request = DescribeTransactionsRequest(transactional_ids=[cell.own(word)])
    [state] = cell.quietly(request, DESCRIBE).transaction_states
    return bool(state.transaction_state == "Ongoing")


def found_and_begun(cell: Cell) -> None:
    found(cell)
    begun(cell)


@asked("TxnOffsetCommit", also=(4,), prepare=found_and_begun)
def commits(cell: Cell) -> None:
    place = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=7, committed_metadata=""
    )
    topics = [TxnOffsetCommitRequestTopic(name=each, partitions=[place]) for each in cell.all()]
    for name, group in PAIRS:
        who = begin(cell, name)
        added = AddOffsetsToTxnRequest(
            transactional_id=who.name,
            producer_id=who.id,
            producer_epoch=who.epoch,
            group_id=cell.own(group),
        )
        cell.until(added, lambda answer: not answer.error_code, 3)
        request = TxnOffsetCommitRequest(
            transactional_id=who.name,
            group_id=cell.own(group),
            producer_id=who.id,
            producer_epoch=who.epoch,
            topics=topics,
        )
        cell.ask(f"the id {name}, the group {group}", request)
        abort(cell, who)


def abort(cell: Cell, who: Who) -> None:
    """And nothing of it is committed."""
    request = EndTxnRequest(
        transactional_id=who.name,
        producer_id=who.id,
        producer_epoch=who.epoch,
        committed=False,
    )
    cell.until(request, lambda answer: not answer.error_code, 4)
    assert 7 not in committed(cell, "allowed").values()


@asked("WriteTxnMarkers")
def markers(cell: Cell) -> None:
    before = ends(cell)
    marker = WritableTxnMarker(
        producer_id=2_000_000 + cell.turn,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=each, partition_indexes=[0]) for each in cell.all()],
    )
    cell.ask("all", WriteTxnMarkersRequest(markers=[marker]))
    now = ends(cell)
    cell.note("all: appended", {word: now[word] - before[word] for word in EXISTING})


def produced(cell: Cell) -> None:
    for word in EXISTING:
        fill(cell, cell.own(word), batch(producer=(3_000_000, 0, 0)))


@asked("DescribeProducers", prepare=produced)
def producers(cell: Cell) -> None:
    topics = [TopicRequest(name=each, partition_indexes=[0]) for each in cell.all()]
    cell.ask("all", DescribeProducersRequest(topics=topics))


def running(cell: Cell) -> None:
    """Both ids have a transaction, each with both topics."""
    found(cell)
    for name in EXISTING:
        who = begin(cell, name)
        for word in EXISTING:
            open_(cell, who, cell.own(word))


@asked("DescribeTransactions", prepare=running)
def described(cell: Cell) -> None:
    def trim(answer: Any) -> None:
        for each in answer.transaction_states:
            each.transaction_start_time_ms = min(each.transaction_start_time_ms, 1)

    cell.ask("all", DescribeTransactionsRequest(transactional_ids=cell.all()), trim=trim)


@asked("ListTransactions", also=(1,), prepare=running)
def listed(cell: Cell) -> None:
    names = cell.all()

    def mine(answer: Any) -> None:
        answer.transaction_states = [
            each for each in answer.transaction_states if each.transactional_id in names
        ]

    cell.ask("all", ListTransactionsRequest(), trim=mine)
