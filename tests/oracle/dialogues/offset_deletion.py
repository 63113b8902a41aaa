"""OffsetDelete: what a group forgets, and what it does not because somebody reads it."""

from itertools import groupby
from operator import itemgetter

from smq.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from smq.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.oracle.dialogues import dialogue
from tests.oracle.dialogues.membership import enter, leave
from tests.oracle.dialogues.transactions import (
    COMMIT,
    END,
    OFFSETS,
    begin,
    committed_by,
    committing,
    ending,
    settled,
)
from tests.oracle.talk import Talk

COMMIT_QUIETLY = 8


def deletion(group: str, *partitions: tuple[str, int]) -> OffsetDeleteRequest:
    """Offsets of a group that are to be forgotten; neighbours of one topic stand together."""
    topics = [
        OffsetDeleteRequestTopic(
            name=name,
            partitions=[
                OffsetDeleteRequestPartition(partition_index=index) for _, index in together
            ],
        )
        for name, together in groupby(partitions, itemgetter(0))
    ]
    return OffsetDeleteRequest(group_id=group, topics=topics)


def read(topic: str) -> dict[str, bytes]:
    """What a consumer of one topic says when it joins."""
    name = topic.encode()
    said = b"\0\0" + b"\0\0\0\1" + len(name).to_bytes(2) + name + b"\xff\xff\xff\xff"
    return {"range": said}


def commit(talk: Talk, group: str, topic: str) -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    request = OffsetCommitRequest(group_id=group, topics=topics)
    done = talk.quietly(request, COMMIT_QUIETLY)
    assert done.topics[0].partitions[0].error_code == 0, done


@dialogue("OffsetDelete")
def forgotten_offsets(talk: Talk) -> None:
    topic, other, group = talk.make_topic(partitions=2), talk.make_topic("other"), talk.own()

    def ask(step: str, asked: OffsetDeleteRequest) -> None:
        talk.ask(step, asked)

    ask("of no group", deletion(talk.own("nobody"), (topic, 0)))
    ask("of the empty name", deletion("", (topic, 0)))
    member = enter(talk, group, protocols=read(topic))
    ask("what a member reads, and not", deletion(group, (topic, 0), (other, 0)))
    leave(talk, member)
    commit(talk, group, topic)
    commit(talk, group, other)
    ask("nothing", deletion(group))
    ask(
        "no partitions",
        OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic)]),
    )
    ask("nothing of no group", deletion(talk.own("nobody")))
    several = (topic, 0), (topic, 1), (topic, 7), (talk.own("no-such"), 0), (other, 0)
    ask("a good and an unknown topic", deletion(group, (other, 0), (talk.own("no-such"), 0)))
    ask("unknown ones between good ones", deletion(group, *((topic, i) for i in (0, 9, 1, 8))))
    ask("there and not there", deletion(group, *several))
    ask("once more", deletion(group, (topic, 0)))
    ask("a topic twice", deletion(group, (topic, 0), (other, 0), (topic, 1)))


@dialogue("OffsetDelete")
def of_members_that_say_else(talk: Talk) -> None:
    topic = talk.make_topic()
    odd = enter(talk, talk.own("odd"), protocols={"range": b"?"})
    talk.ask("of members that say garbage", deletion(odd.group, (topic, 0)))
    leave(talk, odd)
    talk.ask("when they have left", deletion(odd.group, (topic, 0)))
    workers = enter(talk, talk.own("workers"), protocol_type="connect")
    talk.ask("of workers", deletion(workers.group, (topic, 0)))
    leave(talk, workers)
    talk.ask("when the workers have left", deletion(workers.group, (topic, 0)))


@dialogue("OffsetDelete")
def of_offsets_that_wait_for_a_transaction(talk: Talk) -> None:
    topic = talk.make_topic(partitions=2)
    fetch = committed_by(talk, topic)
    me = begin(talk)
    joins = AddOffsetsToTxnRequest(
        transactional_id=me.name,
        producer_id=me.id,
        producer_epoch=me.epoch,
        group_id=talk.own(),
    )
    talk.until(joins, lambda answer: not answer.error_code, OFFSETS)
    kept = talk.quietly(committing(talk, me, topic, (0, 5), (1, 6)), COMMIT)
    assert not any(each.error_code for each in kept.topics[0].partitions), kept
    talk.ask("one of two", deletion(talk.own(), (topic, 0)))
    fetch("if stable", require_stable=True)
    talk.quietly(ending(me), END)
    settled(talk, me)
    fetch("after the commit")
