"""Dead letters: records that a group could not process, in `<topic>.<group>.dlq`.

Key and value are the record's. Headers say where it was and why it is here, by the names of Kafka's
share groups (KIP-1191); the record's own headers are not copied.
"""

import asyncio
import re
from functools import partial
from typing import NamedTuple

from smq.agent.proto.mq_broker_pb2 import DataMessage
from smq.app.agent.broker import BrokerSide
from smq.client.errors import NoSuchTopic
from smq.client.kafka import admin
from smq.client.kafka.cluster import Cluster
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation
from smq.security.audit import DENIALS
from smq.security.principals import Peer
from smq.security.rights import EVERYTHING, Rights

SUFFIX = ".dlq"
NAME_CHARACTERS_MAX = 249
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


class DeadLetter(NamedTuple):
    """A record, and why it is dead."""

    name: TopicPartition
    group: str
    message: DataMessage
    deliveries: int
    why: str


def topic_of(topic: str, group: str) -> str:
    """The topic of a group's dead letters; what no topic's name may have is replaced."""
    name = _ILLEGAL.sub("_", f"{topic}.{group}")
    return name[: NAME_CHARACTERS_MAX - len(SUFFIX)] + SUFFIX


def headers_of(letter: DeadLetter) -> list[tuple[str, bytes]]:
    """What a dead letter says of itself."""
    said = {
        "topic": letter.name.topic,
        "partition": letter.name.partition,
        "offset": letter.message.offset,
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

    Raises BrokerError.
    """
    name, message = topic_of(letter.name.topic, letter.group), letter.message
    if not rights.asks_topic(Operation.WRITE, name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        raise BrokerError(code, f"a dead letter needs WRITE on the topic {name}")
    try:
        await broker.ask(partial(_have, name=name), asker)
    except BrokerError as error:
        if error.code in DENIALS:
            sentence = f"a dead letter needs CREATE on the topic {name}, which there is not"
            raise BrokerError(error.code, sentence) from error
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    producer = await broker.producer()
    record = partial(producer.send, key=message.key or None, headers=headers_of(letter))
    await (await asyncio.to_thread(record, name, message.value))


def _have(cluster: Cluster, name: str) -> None:
    """Have a topic."""
    try:
        cluster.topic(name)
    except NoSuchTopic:
        admin.create_topic(cluster, name)
