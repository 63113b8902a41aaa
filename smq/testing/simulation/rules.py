"""The rules that must hold at the end, once everything was read again: a table of small functions.

Each gets the world, whose reader has read every existing topic, and raises Broken.
"""

from collections.abc import Callable

from shm.kernels.base.words import P_EPOCH
from smq.testing.simulation.intruder import INTRUDERS_TOPIC
from smq.testing.simulation.ledger import Broken, said
from smq.testing.simulation.transactor import ABORTED, COMMITTED, TransactionTopics
from smq.testing.simulation.world import World

Rule = Callable[[World], None]


def claimed_is_there(world: World) -> None:
    """A record that was acked or seen, and whose level survives the failures, is still at its
    offset.

    In a compacted topic, it or a later record of its key.
    """
    for (incarnation, partition), found in world.reader.found.items():
        if incarnation.is_dying:
            continue
        where = incarnation.where(partition)
        last = {incarnation.key_of(value): offset for offset, value in sorted(found.items())}
        for offset, value in incarnation.claims[partition].items():
            now = found.get(offset)
            has_later = last.get(incarnation.key_of(value), -1) > offset
            if now is None and has_later and incarnation.is_compacted:
                continue
            if now is None:
                raise Broken(f"{where}: {said(value)} at offset {offset} is gone")
            if now != value:
                raise Broken(f"{where}: {said(value)} at offset {offset} is {said(now)} now")


def shown_epochs_are_reached(world: World) -> None:
    """Each partition is led in the highest epoch that was shown, or in a higher one."""
    for incarnation in world.ledger.all:
        for partition, number in enumerate(incarnation.topic.partition_numbers):
            process = world.leading_process(world.log_of(incarnation, partition))
            led = None if process is None else process.shard.by_number(number)
            if led is not None and not incarnation.is_dying:
                epoch = int(led.log.partitions.table[led.slot, P_EPOCH])
                world.leaders.check_reached(incarnation.topic, partition, epoch)


def nothing_twice(world: World) -> None:
    """No record is in its partition twice: producers are idempotent.

    In a topic created again, `in_order` covers what was sent before: the batch that the new topic
    accepted first is resent under another epoch.
    """
    for (incarnation, partition), found in world.reader.found.items():
        places: dict[bytes, int] = {}
        if incarnation.is_damaged:
            continue
        for offset, value in found.items():
            if value in incarnation.sent_before:
                continue
            first = places.setdefault(value, offset)
            if first != offset:
                where = incarnation.where(partition)
                raise Broken(f"{where}: {said(value)} is at {first} and at {offset}")


def in_order(world: World) -> None:
    """The records of a lane are in the order of sending.

    A topic that was created again knows none of its producers. It accepts the first batch that
    arrives, as Kafka does, even if an earlier one was refused while the topic did not exist.
    """
    for (incarnation, partition), found in world.reader.found.items():
        newest: dict[bytes, int] = {}
        if incarnation.is_damaged:
            continue
        for offset in sorted(found):
            if found[offset] in incarnation.sent_before:
                continue
            lane, number, _ = found[offset].split(b":", 2)
            if int(number) <= newest.get(lane, -1):
                where = incarnation.where(partition)
                raise Broken(f"{where}: {said(found[offset])} at {offset} is behind a later one")
            newest[lane] = int(number)


def nothing_unknown(world: World) -> None:
    """Every record that is read was sent."""
    for (incarnation, partition), found in world.reader.found.items():
        unknown = set(found.values()) - world.ledger.sent.get(incarnation.topic.name, set())
        if unknown:
            raise Broken(f"{incarnation.topic.name}-{partition} has {unknown}, which nobody sent")


def sdk_reads_all(world: World) -> None:
    """A consumer of the SDK that reads up to the end skips nothing."""
    for consumer in world.sdk_consumers:
        for (incarnation, partition), expected in consumer.next.items():
            found = world.reader.found.get((incarnation, partition))
            if found is None or incarnation.is_damaged or expected.losses != incarnation.losses:
                continue
            end = max(found, default=-1) + 1
            if consumer.reads_alone and expected.offset != end:
                where = incarnation.where(partition)
                raise Broken(f"{consumer.name} has read {where} up to {expected.offset} of {end}")


def transactions_are_whole(world: World) -> None:
    """A reader of committed records sees all of a committed transaction, or in a compacted topic
    a later record of each key; nothing of an aborted one; all or nothing of one with an unknown
    outcome. A failure that none of its topics' levels survives may tear it.
    """
    places = TransactionTopics(world)
    if places.are_damaged:
        return
    found = world.committed_reader.found
    there = {value for records in found.values() for value in records.values()}
    keys = {
        (place, places.of(place)[0].key_of(value))
        for place, records in found.items()
        for value in records.values()
    }
    for transactor in world.transactors:
        for number, attempt in enumerate(transactor.attempts):
            seen = {place for place, value in attempt.values.items() if value in there}
            missing = {
                place
                for place, value in attempt.values.items()
                if place not in seen
                and not (
                    places.of(place)[0].is_compacted
                    and (place, places.of(place)[0].key_of(value)) in keys
                )
            }
            words = f"{transactor.name}: of attempt {number} ({attempt.fate}) one sees {seen}"
            if attempt.fate == ABORTED and seen:
                raise Broken(f"{words}: an aborted read")
            is_torn = missing and (attempt.fate == COMMITTED or seen)
            if is_torn and attempt.losses == places.losses(attempt.values, commits=attempt.commits):
                raise Broken(f"{words}, and misses {sorted(missing)}: a torn transaction")


def aborted_is_never_seen(world: World) -> None:
    """Nobody who reads committed records has ever seen one of an aborted transaction."""
    for transactor in world.transactors:
        for number, attempt in enumerate(transactor.attempts):
            if attempt.fate == ABORTED and world.onlooker.ever & {*attempt.values.values()}:
                raise Broken(f"{transactor.name}: one has seen attempt {number}, which was aborted")


def removed_stays_removed(world: World) -> None:
    """A record that compaction had removed before it was read for the last time is not read: it may
    be of a key whose tombstone is gone."""
    for place, removed in world.reader.removed.items():
        if back := sorted(removed & world.reader.found.get(place, {}).keys()):
            incarnation, partition = place
            raise Broken(f"{incarnation.where(partition)}: compacted offsets are back: {back[:5]}")


def refused_is_nowhere(world: World) -> None:
    """A record that was refused for want of a right, or sent without it, is in no log."""
    refused = {value for writer in world.writers for value in writer.refused()}
    refused |= world.intruder.values
    for (incarnation, partition), found in world.reader.found.items():
        if wrong := refused & {*found.values()}:
            where = incarnation.where(partition)
            raise Broken(f"{where}: {said(min(wrong))} is there, and nobody might write it")


def nobody_has_intruded(world: World) -> None:
    """There is no topic that somebody has asked for who may create none."""
    if world.topic(INTRUDERS_TOPIC) is not None:
        raise Broken(f"{INTRUDERS_TOPIC} is there, and nobody might create it")


RULES: tuple[Rule, ...] = (
    claimed_is_there,
    shown_epochs_are_reached,
    removed_stays_removed,
    nothing_twice,
    in_order,
    nothing_unknown,
    sdk_reads_all,
    transactions_are_whole,
    aborted_is_never_seen,
    refused_is_nowhere,
    nobody_has_intruded,
)
