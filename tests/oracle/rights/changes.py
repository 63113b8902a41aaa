"""Rights that change under a connection: what waits, what has begun, whose it is.

Two principals have no rule of their own before a scenario, which then gives and takes them.
"""

from collections.abc import Callable
from typing import Any

from smq.security.acls import Operation, PatternType, Permission, ResourceType
from smq.wire.generated.create_acls import AclCreation, CreateAclsRequest
from smq.wire.generated.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from smq.wire.generated.end_txn import EndTxnRequest
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from tests.oracle.batches import TRANSACTIONAL, batch, changed
from tests.oracle.dialogues import topics
from tests.oracle.dialogues.fetch import fill
from tests.oracle.dialogues.membership import Member, enter, heartbeat
from tests.oracle.dialogues.topics import creation
from tests.oracle.dialogues.transactions import Who, find, open_
from tests.oracle.rights.cell import Cell, Doors
from tests.oracle.rights.principals import ELSEWHERE
from tests.oracle.rights.questions.data import ends, produce
from tests.oracle.rights.stage import make_topics

Script = Callable[[Cell, Cell], None]
CHANGES: dict[str, Script] = {}
VERSION = 12  # Of Fetch; and what has not so many is asked in its own.
ONE, OTHER = "none", "from-elsewhere"  # Neither has a right here.
PARTITIONS = 20  # More than 16: else we keep no session.
WAIT_MS = 20_000
_T, _O = ResourceType, Operation


def change(script: Script) -> Script:
    CHANGES[f"rights-{script.__name__}".replace("_", "-")] = script
    return script


def play(name: str, doors: Doors) -> dict[str, Any]:
    """One scenario: what was answered at each step."""
    admin = Cell(doors.port, name, VERSION, doors=doors)
    make_topics(admin)
    one, other = (
        Cell(doors.port, name, VERSION, doors=doors, principal=each, ids=admin.ids)
        for each in (ONE, OTHER)
    )
    CHANGES[name](one, other)
    for each in (one, other):
        take(each)
        each.close()
    return one.steps


def give(cell: Cell, operation: Operation, kind: ResourceType = _T.TOPIC, host: str = "*") -> None:
    """A right on what is called `allowed`, once it holds."""
    rule = AclCreation(
        resource_type=kind,
        resource_name=cell.own("allowed"),
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{cell.principal}",
        host=host,
        operation=operation,
        permission_type=Permission.ALLOW,
    )
    answer = cell.quietly(CreateAclsRequest(creations=[rule]), 3)
    assert not answer.results[0].error_code, answer


def take(cell: Cell) -> None:
    """All rights that a principal has here."""
    every = DeleteAclsFilter(
        resource_type_filter=_T.ANY,
        resource_name_filter=cell.own("allowed"),
        pattern_type_filter=PatternType.ANY,
        principal_filter=f"User:{cell.principal}",
        host_filter=None,
        operation=_O.ANY,
        permission_type=Permission.ANY,
    )
    answer = cell.quietly(DeleteAclsRequest(filters=[every]), 3)
    assert not answer.filter_results[0].error_code, answer


def fetch(cell: Cell, *, partitions: int = 1, **fields: Any) -> FetchRequest:
    places = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000_000)
        for index in range(partitions)
    ]
    topic = FetchTopic(topic=cell.own("allowed"), partitions=places)
    asked: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1_000_000}
    return FetchRequest(**(asked | {"topics": [topic]} | fields))


def allowed(cell: Cell) -> None:
    cell.until_allowed(fetch(cell), VERSION)


def first_alone(answer: Any) -> None:
    for topic in answer.responses:
        topic.partitions = [each for each in topic.partitions if each.partition_index == 0]


@change
def from_another_address(one: Cell, other: Cell) -> None:
    """A rule names the address that a client comes from; the coordinator is told of it, too."""
    give(one, _O.ALL, host=ELSEWHERE)
    give(one, _O.ALL, _T.GROUP, host=ELSEWHERE)
    there = Cell(one.port, one.dialogue, VERSION, doors=one.doors, principal=ONE, host=ELSEWHERE)
    there.until_allowed(fetch(there), VERSION)
    for cell, name in ((one, "from here"), (there, "from there")):
        group, topic = cell.own("allowed"), cell.own("allowed")
        cell.ask(f"{name}: Fetch", fetch(cell))
        cell.ask(f"{name}: Heartbeat", heartbeat(Member(group, "nobody", 1)), version=4)
        wanted = creation(topics.topic(topic), validate_only=True)
        cell.ask(f"{name}: CreateTopics", wanted, version=5)
    for step, answer in there.steps.items():
        one.note(step, answer)
    there.close()


@change
def taken_from_a_fetch_that_waits(one: Cell, _: Cell) -> None:
    give(one, _O.READ)
    allowed(one)
    voice = one.voice()
    voice.begin(fetch(one, max_wait_ms=WAIT_MS))
    one.ask("another connection, before", fetch(one))
    take(one)
    fill(one, one.own("allowed"), batch(b"produced when it was taken"))
    voice.answer_seconds_max = 2 * WAIT_MS / 1000
    voice.note("the fetch that waited")
    voice.ask("the next one", fetch(one))


@change
def taken_from_the_next_request(one: Cell, _: Cell) -> None:
    give(one, _O.READ)
    allowed(one)
    take(one)
    one.ask("after READ is taken", fetch(one))
    give(one, _O.WRITE)
    one.until_allowed(produce(one, batch(), "allowed"), 9)
    before = ends(one)["allowed"]
    take(one)
    one.ask("after WRITE is taken", produce(one, batch(), "allowed"), version=9)
    one.note("after WRITE is taken: appended", ends(one)["allowed"] - before)


@change
def taken_from_a_session(one: Cell, _: Cell) -> None:
    give(one, _O.READ)
    allowed(one)
    fill(one, one.own("allowed"), batch(b"a"))
    session = begin_session(one, "begun")
    one.ask("it goes on", fetch(one, session_epoch=1, **session), trim=first_alone)
    take(one)
    one.ask("READ is taken", fetch(one, session_epoch=2, **session), trim=first_alone)
    give(one, _O.READ)
    one.until_allowed(fetch(one), VERSION)
    one.ask("READ is given back", fetch(one, session_epoch=3, **session), trim=first_alone)


@change
def a_session_of_another(one: Cell, other: Cell) -> None:
    for each in (one, other):
        give(each, _O.READ)
        allowed(each)
    fill(one, one.own("allowed"), batch(b"a"))
    session = begin_session(one, "begun")
    other.ask("x", fetch(other, session_epoch=1, **session), trim=first_alone)
    one.note("another goes on with it", other.steps.pop("x"))
    session = begin_session(one, "begun once more")
    other.ask("x", fetch(other, session_epoch=-1, **session), trim=first_alone)
    one.note("another closes it", other.steps.pop("x"))
    one.ask("its owner goes on with it", fetch(one, session_epoch=1, **session), trim=first_alone)


def begin_session(cell: Cell, step: str) -> dict[str, Any]:
    """The fields of a fetch that goes on."""
    answer = cell.ask(step, fetch(cell, session_epoch=0, partitions=PARTITIONS), trim=first_alone)
    return {"session_id": answer.session_id, "topics": []}


@change
def taken_from_a_transaction(one: Cell, _: Cell) -> None:
    find(one, one.own("allowed"))
    give(one, _O.WRITE)
    give(one, _O.WRITE, _T.TRANSACTIONAL_ID)
    who = begin(one)
    open_(one, who, one.own("allowed"))
    records = changed(batch(producer=(who.id, who.epoch, 0)), attributes=TRANSACTIONAL)
    within = produce(one, records, "allowed", transactional_id=who.name)
    one.until_allowed(within, 9)
    take(one)
    give(one, _O.WRITE, _T.TRANSACTIONAL_ID)
    again = changed(batch(producer=(who.id, who.epoch, 1)), attributes=TRANSACTIONAL)
    within = produce(one, again, "allowed", transactional_id=who.name)
    one.ask("WRITE on the topic is taken: Produce", within, version=9)
    one.ask("WRITE on the topic is taken: EndTxn", ending(who), version=4)
    who = begin(one)
    open_(one, who, one.own("allowed"))
    take(one)
    one.ask("WRITE on the id is taken: EndTxn", ending(who), version=4)
    one.note("WRITE on the id is taken: a new producer ends it", begin(one).epoch > who.epoch)


def begin(cell: Cell) -> Who:
    name = cell.own("allowed")
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    answer = cell.until(request, lambda answer: not answer.error_code, 4)
    return Who(name, answer.producer_id, answer.producer_epoch)


def ending(who: Who) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=who.name, producer_id=who.id, producer_epoch=who.epoch, committed=True
    )


@change
def taken_from_a_member(one: Cell, _: Cell) -> None:
    member = enter(one, one.own("allowed"))
    give(one, _O.READ, _T.GROUP)
    one.until_allowed(heartbeat(member), 4)
    one.ask("a heartbeat", heartbeat(member), version=4)
    take(one)
    one.ask("a heartbeat when READ is taken", heartbeat(member), version=4)
