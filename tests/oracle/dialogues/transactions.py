"""Transactions as their coordinator sees them; nothing is written within them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from smq.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from smq.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from smq.wire.generated.describe_transactions import DescribeTransactionsRequest
from smq.wire.generated.end_txn import EndTxnRequest
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from smq.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.oracle.dialogues import dialogue
from tests.oracle.plain import own
from tests.oracle.talk import Talk

CONCURRENT = 51
INIT, ADD, OFFSETS, END, COMMIT = 4, 3, 3, 4, 3  # Versions of what is only needed beforehand.
BATCHED = 4
PATTERNS = 2  # ListTransactions.
V2 = 5  # EndTxn and TxnOffsetCommit: an end bumps the epoch (KIP-890).


class Who(NamedTuple):
    """A producer as it names itself."""

    name: str
    id: int
    epoch: int


def find(talk: Talk, name: str) -> None:
    """Have the coordinator ready for a transactional id."""
    request = FindCoordinatorRequest(coordinator_keys=[name], key_type=1)
    talk.until(request, lambda answer: not answer.coordinators[0].error_code, 2)
    warm_up = talk.own("warm-up")
    begins = InitProducerIdRequest(transactional_id=warm_up, transaction_timeout_ms=60_000)
    talk.until(begins, lambda answer: not answer.error_code, INIT)


def begin(talk: Talk, suffix: str = "") -> Who:
    """A producer with a transactional id, once nothing of the one before is being written."""
    name = talk.own(suffix)
    find(talk, name)
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    answer = talk.until(request, lambda answer: not answer.error_code, INIT)
    return Who(name, answer.producer_id, answer.producer_epoch)


def partitions(topic: str, *indexes: int) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))]


def adding(
    who: Who, topics: list[AddPartitionsToTxnTopic], *, verify_only: bool = False
) -> AddPartitionsToTxnRequest:
    one = AddPartitionsToTxnTransaction(
        transactional_id=who.name,
        producer_id=who.id,
        producer_epoch=who.epoch,
        verify_only=verify_only,
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=[one])


def open_(talk: Talk, who: Who, topic: str, *indexes: int) -> None:
    """Have partitions in the producer's transaction."""

    def good(answer: AddPartitionsToTxnResponse) -> bool:
        [result] = answer.results_by_transaction[0].topic_results
        return not any(each.partition_error_code for each in result.results_by_partition)

    talk.until(adding(who, partitions(topic, *(indexes or (0,)))), good, ADD)


def ending(who: Who, *, committed: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=who.name,
        producer_id=who.id,
        producer_epoch=who.epoch,
        committed=committed,
    )


def settled(talk: Talk, who: Who) -> None:
    """Wait until no marker of the producer is missing."""
    request = DescribeTransactionsRequest(transactional_ids=[who.name])
    talk.until(
        request,
        lambda answer: not answer.transaction_states[0].transaction_state.startswith("Prepare"),
        0,
    )


@dialogue("FindCoordinator", since=1)
def of_transactional_ids(talk: Talk) -> None:
    find(talk, "warm-up")
    name = talk.own()
    if talk.version >= 4:
        talk.ask("several", FindCoordinatorRequest(key_type=1, coordinator_keys=[name, name, ""]))
    else:
        talk.ask("one", FindCoordinatorRequest(key_type=1, coordinator_keys=[name]))
        talk.ask("an empty one", FindCoordinatorRequest(key_type=1, coordinator_keys=[""]))


@dialogue("InitProducerId", also=(3, 4))
def transactional(talk: Talk) -> None:
    name = talk.own()
    find(talk, name)

    def ask(step: str, **fields: Any) -> Any:
        asked: dict[str, Any] = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        return talk.ask(step, InitProducerIdRequest(**(asked | fields)))

    ask("no timeout", transaction_timeout_ms=0)
    ask("a negative timeout", transaction_timeout_ms=-1)
    ask("the longest timeout", transaction_timeout_ms=900_000)
    ask("a longer timeout", transaction_timeout_ms=900_001)
    first = ask("the next")
    if talk.version < 3:
        return
    me = {"producer_id": first.producer_id}
    ask("who it is", **me, producer_epoch=1)
    ask("who it is, again", **me, producer_epoch=1)
    ask("who it was", **me, producer_epoch=0)
    ask("who it will be", **me, producer_epoch=3)
    ask("another", producer_id=first.producer_id + 1000, producer_epoch=2)
    ask("an id without an epoch", **me)
    ask("an epoch without an id", producer_epoch=2)
    ask("whoever")
    ask("who has been before", **me, producer_epoch=2)


@dialogue("InitProducerId", also=(3, 4))
def fencing(talk: Talk) -> None:
    """A producer begins while another's transaction is open: whatever the other says then."""
    topic = talk.make_topic()
    zombie = begin(talk)
    open_(talk, zombie, topic)
    request = InitProducerIdRequest(transactional_id=zombie.name, transaction_timeout_ms=60_000)
    talk.ask("while a transaction is open", request)
    settled(talk, zombie)
    after = talk.ask("when it is aborted", request)
    talk.note("the epoch", after.producer_epoch)
    for version in (0, 2, 3):
        name = f"the zombie adds, version {version}"
        talk.ask(name, adding(zombie, partitions(topic, 0)), version=version)
    for version in (0, 2, 3):
        request_2 = AddOffsetsToTxnRequest(
            transactional_id=zombie.name,
            producer_id=zombie.id,
            producer_epoch=zombie.epoch,
            group_id=talk.own(),
        )
        talk.ask(f"the zombie adds offsets, version {version}", request_2, version=version)
    for version in (0, 1, 2, 4, 5):
        for committed in (True, False):
            what = "commits" if committed else "aborts"
            ended = ending(zombie, committed=committed)
            talk.ask(f"the zombie {what}, version {version}", ended, version=version)
    if talk.version >= 3:
        mine = {"producer_id": zombie.id, "producer_epoch": zombie.epoch}
        talk.ask(
            "the zombie begins",
            InitProducerIdRequest(
                transactional_id=zombie.name, transaction_timeout_ms=60_000, **mine
            ),
        )


@dialogue("InitProducerId", since=4)
def aborted_and_not_begun_again(talk: Talk) -> None:
    """Another producer has only asked once: the transaction is aborted, and nobody has begun."""
    topic = talk.make_topic()
    for version in (4, 5):
        zombie = begin(talk, f"end-{version}")
        open_(talk, zombie, topic)
        request = InitProducerIdRequest(transactional_id=zombie.name, transaction_timeout_ms=60_000)
        talk.ask(f"another asks, {version}", request)
        settled(talk, zombie)
        ended = ending(zombie)
        talk.ask(f"it commits, {version}", ended, version=version)
        ended = ending(zombie, committed=False)
        talk.ask(f"it aborts, {version}", ended, version=version)


def in_order(answer: AddPartitionsToTxnResponse) -> None:
    """Kafka answers in an order of its own."""
    topics: list[AddPartitionsToTxnTopicResult] = []
    for result in answer.results_by_transaction:
        result.topic_results = sorted(result.topic_results, key=lambda each: each.name)
        topics = [*topics, *result.topic_results]
    for topic in topics:
        topic.results_by_partition = sorted(
            topic.results_by_partition, key=lambda each: each.partition_index
        )


@dialogue("AddPartitionsToTxn", also=(1, 2, 4))
def partitions_added(talk: Talk) -> None:
    topic = talk.make_topic(partitions=3)
    me = begin(talk)

    def ask(step: str, who: Who, *topics: AddPartitionsToTxnTopic, **how: Any) -> None:
        talk.ask(step, adding(who, list(topics), **how), trim=in_order)

    [one], [two] = partitions(topic, 0), partitions(topic, 1, 2)
    [unknown] = partitions(talk.own("unknown"), 0)
    [beyond] = partitions(topic, 7, 0)
    ask("nothing", me)
    ask("one", me, one)
    ask("the same", me, one)
    ask("two more", me, two)
    ask("an unknown topic", me, one, unknown)
    ask("an unknown partition", me, beyond)
    ask("by nobody", me._replace(name=talk.own("nobody")), one)
    ask("by an empty name", me._replace(name=""), one)
    ask("with another id", me._replace(id=me.id + 1000), one)
    ask("with a later epoch", me._replace(epoch=me.epoch + 1), one)
    ask("with no epoch", me._replace(epoch=-1), one)
    if talk.version >= BATCHED:
        ask("verified", me, one, verify_only=True)
        ask("verified, of another", me._replace(id=me.id + 1000), one, verify_only=True)
        ask("verified, of a later epoch", me._replace(epoch=9), one, verify_only=True)
        other = begin(talk, "other")
        ask("verified, not in it", other, one, verify_only=True)
        both = [adding(who, [one]).transactions[0] for who in (me, other)]
        talk.ask("of two producers", AddPartitionsToTxnRequest(transactions=both))


@dialogue("AddOffsetsToTxn", also=(1, 2))
def offsets_added(talk: Talk) -> None:
    me = begin(talk)

    def ask(step: str, who: Who, group: str) -> None:
        talk.ask(
            step,
            AddOffsetsToTxnRequest(
                transactional_id=who.name,
                producer_id=who.id,
                producer_epoch=who.epoch,
                group_id=group,
            ),
        )

    ask("a group", me, talk.own())
    ask("the same", me, talk.own())
    ask("another", me, talk.own("other"))
    ask("by nobody", me._replace(name=talk.own("nobody")), talk.own())
    ask("by an empty name", me._replace(name=""), talk.own())
    ask("with another id", me._replace(id=me.id + 1000), talk.own())
    ask("with a later epoch", me._replace(epoch=me.epoch + 1), talk.own())


@dialogue("EndTxn", also=(1, 2, 4))
def ends(talk: Talk) -> None:
    """Each request again, the opposite, and of others."""
    topic = talk.make_topic()

    def ask(step: str, who: Who, *, committed: bool) -> Who:
        answer = talk.ask(step, ending(who, committed=committed))
        settled(talk, who if who.name else me)
        if talk.version >= V2:
            talk.note(f"{step}: the epoch", answer.producer_epoch)
            if answer.producer_epoch >= 0:
                return Who(who.name, answer.producer_id, answer.producer_epoch)
        return who

    me = begin(talk)
    for committed in (True, False):
        what = "commit" if committed else "abort"
        opposite = "abort" if committed else "commit"
        new = ask(f"a first {what} of nothing", me, committed=committed)
        me = new
        open_(talk, me, topic)
        new = ask(f"a {what}", me, committed=committed)
        ask(f"the {what} again", me, committed=committed)
        ask(f"{opposite} after {what}", me, committed=not committed)
        if new != me:
            ask(f"a {what} of nothing by the new", new, committed=committed)
            new = begin(talk)
        me = new
    ask("by nobody", me._replace(name=talk.own("nobody")), committed=True)
    ask("with another id", me._replace(id=me.id + 1000), committed=True)
    ask("with a later epoch", me._replace(epoch=me.epoch + 1), committed=True)
    talk.ask("by an empty name", ending(me._replace(name="")))


@dialogue("EndTxn", since=5)
def late_ends(talk: Talk) -> None:
    """KAFKA-17754: what is late or doubled never reaches the next transaction."""
    topic = talk.make_topic()
    first = begin(talk)
    open_(talk, first, topic)
    answer = talk.ask("the first", ending(first))
    settled(talk, first)
    second = Who(first.name, answer.producer_id, answer.producer_epoch)
    open_(talk, second, topic)
    talk.ask("the first again", ending(first))
    talk.ask("its opposite", ending(first, committed=False))
    talk.ask("its partitions", adding(first, partitions(topic, 0)), version=3)
    answer = talk.ask("the second", ending(second, committed=False))
    settled(talk, first)
    talk.ask("the first once more", ending(first))
    talk.ask("the second again", ending(second, committed=False))


def committing(
    talk: Talk, who: Who, topic: str, *offsets: tuple[int, int], **fields: Any
) -> TxnOffsetCommitRequest:
    metadata = fields.pop("committed_metadata", "")
    partitions = [
        TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        for partition, offset in offsets
    ]
    request: dict[str, Any] = {
        "transactional_id": who.name,
        "group_id": talk.own(),
        "producer_id": who.id,
        "producer_epoch": who.epoch,
        "topics": [TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
    }
    return TxnOffsetCommitRequest(**(request | fields))


def committed_by(talk: Talk, topic: str) -> Callable[..., None]:
    """Asks what the group has committed of two partitions."""

    def ask(step: str, *, require_stable: bool = False, names: bool = True) -> None:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
        group = OffsetFetchRequestGroup(group_id=talk.own(), topics=topics if names else None)
        request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
        talk.ask(step, request, version=9)

    return ask


@dialogue("TxnOffsetCommit", also=(2, 4))
def offsets(talk: Talk) -> None:
    topic = talk.make_topic(partitions=2)
    fetch = committed_by(talk, topic)
    me = begin(talk)

    def add(who: Who, group: str | None = None) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=who.name,
            producer_id=who.id,
            producer_epoch=who.epoch,
            group_id=group or talk.own(),
        )
        talk.until(request, lambda answer: not answer.error_code, OFFSETS)

    nobody = me._replace(name=talk.own("nobody"))
    talk.ask("by nobody", committing(talk, nobody, topic, (0, 9)))
    if talk.version < V2:
        talk.ask("not in the transaction", committing(talk, me, topic, (0, 3)))
        add(me)
    talk.ask("one", committing(talk, me, topic, (0, 3)))
    fetch("before it is decided")
    fetch("before it is decided, if stable", require_stable=True)
    fetch("all before it is decided", names=False)
    fetch("all before it is decided, if stable", names=False, require_stable=True)
    talk.ask("the next", committing(talk, me, topic, (0, 4), committed_metadata="note"))
    talk.ask("with another id", committing(talk, me._replace(id=me.id + 1000), topic, (0, 9)))
    later = me._replace(epoch=me.epoch + 1)
    talk.ask("with a later epoch", committing(talk, later, topic, (0, 9)))
    both = committing(talk, me, topic, (0, 4), (7, 9))
    talk.ask("an unknown partition", both)
    talk.ask("an unknown topic", committing(talk, me, talk.own("unknown"), (0, 9)))
    talk.ask(
        "too much metadata", committing(talk, me, topic, (0, 9), committed_metadata="x" * 5000)
    )
    if talk.version >= 3:
        talk.ask("a generation", committing(talk, me, topic, (0, 9), generation_id=3))
        talk.ask("a member", committing(talk, me, topic, (0, 9), generation_id=3, member_id="m"))
        unknown = {"group_id": talk.own("unknown"), "generation_id": 3, "member_id": "m"}
        if talk.version < V2:
            add(me, talk.own("unknown"))
        talk.ask("a member of no group", committing(talk, me, topic, (0, 9), **unknown))
    talk.quietly(ending(me), END)
    settled(talk, me)
    fetch("after the commit", require_stable=True)
    fetch("all after the commit", names=False, require_stable=True)
    if talk.version < V2:
        talk.ask("after the end", committing(talk, me, topic, (1, 9)))
        add(me)
    talk.ask("another", committing(talk, me, topic, (1, 8)))
    fetch("all before the abort, if stable", names=False, require_stable=True)
    talk.quietly(ending(me, committed=False), END)
    settled(talk, me)
    fetch("after the abort", require_stable=True)


@dialogue("ListTransactions")
def transactions_listed(talk: Talk) -> None:
    topic = talk.make_topic()
    me, other = begin(talk), begin(talk, "other")
    open_(talk, other, topic)

    def mine(answer: ListTransactionsResponse) -> None:
        states = own(answer.transaction_states, "transactional_id", talk.own())
        states = [each for each in states if "warm-up" not in each.transactional_id]
        answer.transaction_states = sorted(states, key=lambda each: each.transactional_id)

    def ask(step: str, **fields: Any) -> None:
        talk.ask(step, ListTransactionsRequest(**fields), trim=mine)

    ask("all")
    ask("those that are open", state_filters=["Ongoing"])
    ask("those that are no such thing", state_filters=["ongoing", "Empty", "Nonsense"])
    ask("in a state of no id", state_filters=["PrepareEpochFence"])
    ask("of a producer", producer_id_filters=[me.id])
    ask("of a producer and a state", producer_id_filters=[me.id], state_filters=["Ongoing"])
    if talk.version >= 1:
        ask("for an hour", duration_filter=3_600_000)
        ask("for no time", duration_filter=0)
        ask("for less than no time", duration_filter=-7)
    if talk.version >= PATTERNS:
        ask("by its name", transactional_id_pattern=other.name)
        ask("by a pattern", transactional_id_pattern=f"{talk.own()}.*oth[a-f]r")
        ask("by a pattern of no id", transactional_id_pattern=talk.own("o"))
        ask("by a pattern and a state", transactional_id_pattern=".*", state_filters=["Ongoing"])
        ask("by an empty pattern", transactional_id_pattern="")
        for bad in ("(", "[a", "*", "(?=a)", r"(a)\1"):
            ask(f"by {bad}", transactional_id_pattern=bad)


@dialogue("DescribeTransactions")
def transactions_described(talk: Talk) -> None:
    topic = talk.make_topic(partitions=3)
    other_topic = talk.make_topic("more")
    me = begin(talk)

    def ask(step: str, *names: str) -> None:
        def trimmed(answer: Any) -> None:
            for state in answer.transaction_states:
                if state.transaction_start_time_ms > 0:
                    state.transaction_start_time_ms = 1
                state.topics = sorted(state.topics, key=lambda each: each.topic)
                for each in state.topics:
                    each.partitions = sorted(each.partitions)

        talk.ask(step, DescribeTransactionsRequest(transactional_ids=list(names)), trim=trimmed)

    ask("none")
    ask("an empty name", "")
    ask("unknown", talk.own("unknown"))
    ask("nothing is open", me.name)
    open_(talk, me, topic, 2, 0)
    open_(talk, me, other_topic)
    ask("open", me.name)
    ask("several", me.name, talk.own("unknown"))
    talk.quietly(ending(me), END)
    settled(talk, me)
    ask("committed", me.name)
    open_(talk, me, topic)
    talk.quietly(ending(me, committed=False), V2)
    settled(talk, me)
    ask("aborted", me.name)
