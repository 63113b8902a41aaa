"""Diagnoses a broker from collected evidence.

Each finding is a sentence on a problem and its remedy.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from smq.cli.status import size
from smq.front.metrics.facts import Facts
from smq.model.setting import GiB

if TYPE_CHECKING:
    from smq.cli.broker_facts import OpenTransaction

ROOM_SHARE_MIN = 0.25  # Of wal.bytes.max: below, producers are slowed.
DISK_FREE_BYTES_MIN = 4 * GiB  # Below, the log leaves the rest of the disk to others.
DESCRIPTORS_SHARE_MAX = 0.8
LAG_S_MAX = 3600.0
CLOCK_MOVED_S_MAX = 5.0  # The kernel reports its boot time in whole seconds.
FILER_S_MAX = 1.0
CGROUP_SHARE_MAX = 0.9
TABLE_BEHIND_S_MAX = 600.0
TRANSACTIONS_SAID = 3
CERTIFICATE_DAYS_MIN = 14.0  # `smq certs` makes some for 30.
OPEN_S_MAX = 60.0  # Of a transaction: Kafka's clients end theirs within a minute by default.


class ProcessLimits(NamedTuple):
    """A process's usage and limits according to the kernel, in counts and bytes."""

    name: str
    descriptors: int
    descriptors_max: int
    swapped_bytes: int


class MachineFacts(NamedTuple):
    """The machine according to the kernel, in bytes; times in seconds.

    filer_s         the filer's response time; None if it did not answer
    clock_moved_s   how far the wall clock was set since the shards started
    cgroup_bytes    this container's memory usage and limit; 0: no limit
    """

    memory_bytes: int
    memory_available_bytes: int
    sync_s: float
    clock_is_synchronized: bool | None
    filer_s: float | None = 0.0
    clock_moved_s: float = 0.0
    cgroup_bytes: int = 0
    cgroup_bytes_max: int = 0


def findings(
    facts: Facts,
    limits: Sequence[ProcessLimits],
    machine: MachineFacts,
    ring_bytes: int,
    transactions: Sequence["OpenTransaction"] = (),
) -> list[str]:
    """Sentences; none if all looks well. The transaction that is open for the longest comes
    first."""
    return [
        *_processes(facts),
        *_certificates(facts),
        *_space(facts, transactions),
        *_transactions(transactions),
        *_limits(limits),
        *_machine(machine, ring_bytes),
        *_groups(facts),
        *_tables(facts),
        *(f"a source could not be read: {each}" for each in facts.missing),
    ]


def _processes(facts: Facts) -> Iterator[str]:
    for each in facts.processes:
        if not each.is_ready:
            yield f"{each.name} does not serve; the broker's stderr says why"
        if each.restarts:
            yield (f"{each.name} was restarted {each.restarts} times; the broker's stderr says why")


def _certificates(facts: Facts) -> Iterator[str]:
    for each in facts.certificates:
        what = f"the certificate of the listener {each.listener}"
        remedy = "replace the file of its key store: it is read again within seconds"
        if each.days_left < 0:
            yield f"{what} ended {-each.days_left:.1f} days ago, and clients refuse it; {remedy}"
        elif each.days_left < CERTIFICATE_DAYS_MIN:
            yield f"{what} ends in {each.days_left:.1f} days; {remedy}"


def _transactions(transactions: Sequence["OpenTransaction"]) -> Iterator[str]:
    late = [each for each in transactions if each.open_s > OPEN_S_MAX]
    for each in late[:TRANSACTIONS_SAID]:
        yield (
            f"{_named(each)}: readers of committed records wait there; end it, or see why its "
            "program does not"
        )
    if len(late) > TRANSACTIONS_SAID:
        yield f"{len(late) - TRANSACTIONS_SAID} more transactions are open for over a minute"


def _named(each: "OpenTransaction") -> str:
    (topic, partition), *others = each.parts
    more = f" and {len(others)} more" if others else ""
    return (
        f"producer {each.producer_id} ({each.transactional_id}) has had a transaction open for "
        f"{each.open_s:.0f} s in {topic}-{partition}{more}"
    )


def _holding(
    facts: Facts, log: int, transactions: Sequence["OpenTransaction"]
) -> "OpenTransaction | None":
    """The oldest transaction that is open in a partition of this log, with such a partition first:
    what is behind its first record is not decided."""
    held = {
        (each.topic, each.partition)
        for each in facts.partitions
        if each.log == log and each.stable_offset < each.end_offset
    }
    for each in transactions:
        if parts := [part for part in each.parts if part in held]:
            return each._replace(parts=parts)
    return None


def _space(facts: Facts, transactions: Sequence["OpenTransaction"]) -> Iterator[str]:
    if facts.disk_free_bytes < DISK_FREE_BYTES_MIN:
        yield (
            f"the disk has {size(facts.disk_free_bytes)} free, so the WAL takes less than "
            "wal.bytes.max; make room, or shorten retention"
        )
    for log in facts.logs:
        if log.wal_room_bytes < ROOM_SHARE_MIN * log.wal_bytes_max:
            held = _holding(facts, log.log, transactions)
            why = (
                "the sealer is behind: check the filer's speed"
                if held is None
                else f"{_named(held)}, and what is behind it is sealed twice; end it"
            )
            yield (
                f"log {log.log} has room for {size(log.wal_room_bytes)} of "
                f"{size(log.wal_bytes_max)}: producers are slowed; {why}"
            )


def _tables(facts: Facts) -> Iterator[str]:
    for each in facts.tables:
        name = f"the {each.format} table of {each.topic}"
        if each.error:
            yield f"{name} is not published: {each.error}"
        elif each.behind_s > TABLE_BEHIND_S_MAX:
            yield (
                f"{name} lacks {each.records_behind} records that were sealed up to "
                f"{each.behind_s:.0f} s ago; the sealer's stderr says why"
            )
        if each.note:
            yield f"{name}: {each.note}; other writers than SMQ must not change it"


def _limits(limits: Sequence[ProcessLimits]) -> Iterator[str]:
    for each in limits:
        if each.descriptors > DESCRIPTORS_SHARE_MAX * each.descriptors_max:
            yield (
                f"{each.name} has {each.descriptors} of {each.descriptors_max} descriptors; raise "
                "its limit (ulimit -n, LimitNOFILE)"
            )
        if each.swapped_bytes:
            yield (
                f"{size(each.swapped_bytes)} of {each.name} are swapped out, and requests wait; "
                "give the machine more memory, or turn swap off"
            )


def _machine(machine: MachineFacts, ring_bytes: int) -> Iterator[str]:
    if machine.memory_available_bytes < ring_bytes // 4:
        yield (
            f"{size(machine.memory_available_bytes)} of memory are available, and the rings take "
            f"up to {size(ring_bytes)}; lower ring.bytes, or stop other programs"
        )
    if machine.sync_s > 0.1:
        yield (
            f"a sync of the data directory's disk took {1000 * machine.sync_s:.0f} ms; topics with "
            "smq.durability=disk wait for it"
        )
    if machine.clock_is_synchronized is False:
        yield "the clock is not synchronized, and retention follows it; run chrony or ntpd"
    if abs(machine.clock_moved_s) > CLOCK_MOVED_S_MAX:
        yield (
            f"the clock was set by {machine.clock_moved_s:+.0f} s since the broker started: "
            "retention by time and timestamps follow it; restart producers that stamp records"
        )
    yield from _filer(machine)
    if machine.cgroup_bytes > CGROUP_SHARE_MAX * machine.cgroup_bytes_max > 0:
        yield (
            f"{size(machine.cgroup_bytes)} of the container's {size(machine.cgroup_bytes_max)} are "
            "in use, shared memory included; raise its memory limit, or lower ring.bytes"
        )


def _filer(machine: MachineFacts) -> Iterator[str]:
    if machine.filer_s is None:
        yield (
            "the filer does not answer: nothing is sealed, and the log fills; the broker's stderr "
            "says why"
        )
    elif machine.filer_s > FILER_S_MAX:
        yield (
            f"the filer took {machine.filer_s:.1f} s to list an object; sealing and cold reads "
            "wait for it"
        )


def _groups(facts: Facts) -> Iterator[str]:
    firsts = {(each.topic, each.partition): each.first_offset for each in facts.partitions}
    ends = {(each.topic, each.partition): each.end_offset for each in facts.partitions}
    for each in facts.offsets:
        place = each.topic, each.partition
        name = f"group {each.group} in {each.topic}-{each.partition}"
        if each.offset < firsts.get(place, 0):
            yield (
                f"{name} has not read {firsts[place] - each.offset} records that retention has "
                "deleted; lengthen retention.ms, or add consumers"
            )
        elif each.offset > ends.get(place, each.offset):
            yield (
                f"{name} has committed offset {each.offset}, but the partition ends at "
                f"{ends[place]}; `smq group reset` moves it"
            )
        elif (each.lag_s or 0.0) > LAG_S_MAX:
            yield f"{name} is {each.lag_s:.0f} s behind; add consumers, or see why they are slow"
