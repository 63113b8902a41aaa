"""Dead letters: records that a group could not process, in `<topic>.<group>.dlq`.

Key and value are the record's. Headers say where it was and why it is here, by the names of Kafka's
share groups (KIP-1191); the record's own headers are not copied. A letter that its topic does not
take goes without the value, or without the key too: a group would stand still for it. In a topic
that is compacted a letter without a key is known by its record's topic, partition and offset.
"""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from smq.agent.read_records import ReadRecord
from smq.app.agent.broker import BrokerSide
from smq.client.errors import NoSuchTopic, RecordTooLarge
from smq.client.kafka import admin
from smq.client.kafka.cluster import Cluster
from smq.client.names import TopicPartition
from smq.client.producing.producer import Producer
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation
from smq.security.audit import DENIALS
from smq.security.principals import Peer
from smq.security.rights import EVERYTHING, Rights

SUFFIX = ".dlq"
MESSAGE_BYTES_MAX = "max.message.bytes"
LETTER_ROOM_BYTES = 64 * 1024  # For what a letter says, beside the largest record of its topic.
LEFT_OUT = "__dlq.errors.left.out"
NAME_CHARACTERS_MAX = 249
ROOM_THREADS_MAX = 8
_ROOM = ThreadPoolExecutor(ROOM_THREADS_MAX, "letters")
"""Letters wait here for the producer's room: in the threads of all other calls they would hold
those up, and in those of publishers they would wait behind them."""
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


class DeadLetter(NamedTuple):
    """A record, and why it is dead."""

    name: TopicPartition
    group: str
    record: ReadRecord
    deliveries: int
    why: str
    message_bytes_max: str | None = None
    """What holds for the record's topic; None: it is not known."""


def topic_of(topic: str, group: str) -> str:
    """The topic of a group's dead letters; what no topic's name may have is replaced."""
    name = _ILLEGAL.sub("_", f"{topic}.{group}")
    return name[: NAME_CHARACTERS_MAX - len(SUFFIX)] + SUFFIX


def headers_of(letter: DeadLetter) -> list[tuple[str, bytes]]:
    """What a dead letter says of itself."""
    said = {
        "topic": letter.name.topic,
        "partition": letter.name.partition,
        "offset": letter.record.offset,
        "group": letter.group,
        "delivery.count": letter.deliveries,
        "message": letter.why,
    }
    return [(f"__dlq.errors.{name}", str(value).encode()) for name, value in said.items()]


async def write(
    broker: BrokerSide,
    letter: DeadLetter,
    asker: Peer | None = None,
    rights: Rights = EVERYTHING,
) -> None:
    """Append a dead letter, to a topic that is created for it, in the subscriber's name.

    Raises BrokerError, BufferFull (it may be written later).
    """
    name = topic_of(letter.name.topic, letter.group)
    if not rights.asks_topic(Operation.WRITE, name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        raise BrokerError(code, f"a dead letter needs WRITE on the topic {name}")
    try:
        own = letter.message_bytes_max
        await broker.ask(partial(_have, name=name, message_bytes_max=own), asker)
    except BrokerError as error:
        if error.code in DENIALS:
            sentence = f"a dead letter needs CREATE on the topic {name}, which there is not"
            raise BrokerError(error.code, sentence) from error
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    await _send(await broker.producer(), name, letter)


async def _send(producer: Producer, name: str, letter: DeadLetter) -> None:
    """Append a letter, with a key of its own if its topic takes none without."""
    try:
        await _send_some(producer, name, letter, None)
    except BrokerError as error:
        if error.code != ErrorCode.INVALID_RECORD:
            raise
        where = f"{letter.name.topic}-{letter.name.partition}-{letter.record.offset}"
        await _send_some(producer, name, letter, where.encode())


async def _send_some(
    producer: Producer, name: str, letter: DeadLetter, no_key: bytes | None
) -> None:
    """Append a letter, or what its topic takes of it. `no_key`: stands for a key."""
    key, value, said = letter.record.key or no_key, letter.record.value, headers_of(letter)
    forms: list[tuple[str, bytes | None, bytes | None]] = [
        ("", key, value),
        ("value", key, None),
        ("key, value", no_key, None),
    ]
    for left_out, key_sent, value_sent in forms:
        more = [(LEFT_OUT, left_out.encode())] if left_out else []
        try:
            await _make_room(producer, name, value_sent, key_sent)  # Then nothing else may run.
            await producer.send(name, value_sent, key=key_sent, headers=[*said, *more])
        except RecordTooLarge:
            if left_out == forms[-1][0]:
                raise
        else:
            return


async def _make_room(producer: Producer, name: str, value: bytes | None, key: bytes | None) -> None:
    """Wait until sending need not: it is done in the loop, as publishers do, whose room it would
    take from a thread."""
    room, loop = (name, value, key), asyncio.get_running_loop()
    while producer.must_wait(*room):
        await loop.run_in_executor(_ROOM, producer.wait_for_room, *room)


def _have(cluster: Cluster, name: str, message_bytes_max: str | None) -> None:
    """Have a topic, which takes the records of another one."""
    cluster.forget_topics()  # It may have been deleted since the last letter.
    try:
        cluster.topic(name)
    except NoSuchTopic:
        if message_bytes_max is None:
            admin.create_topic(cluster, name)
            return
        with_room = str(int(message_bytes_max) + LETTER_ROOM_BYTES)
        try:
            admin.create_topic(cluster, name, configs={MESSAGE_BYTES_MAX: with_room})
        except BrokerError as error:
            if error.code != ErrorCode.INVALID_CONFIG:  # It is more than the broker takes.
                raise
            admin.create_topic(cluster, name, configs={MESSAGE_BYTES_MAX: message_bytes_max})
