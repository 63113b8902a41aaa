"""What looks wrong is said, and nothing else."""

from dataclasses import replace

import pytest

from smq.cli.broker_facts import OpenTransaction
from smq.cli.diagnosis import MachineFacts, ProcessLimits, findings
from smq.front.metrics.facts import (
    CertificateFacts,
    Facts,
    GroupOffset,
    LogFacts,
    PartitionFacts,
    ProcessFacts,
)

GiB = 2**30
LOG = LogFacts(0, {}, 100, 50, 4 * GiB, 3 * GiB, 0)
WELL = Facts(
    version="1",
    is_ready=True,
    started_ms=0,
    processes=[ProcessFacts("shard-1", True, 0)],
    logs=[LOG],
    partitions=[PartitionFacts("t", 0, 1, 10, 20, 0, 0, 0)],
    offsets=[GroupOffset("g", "t", 0, 15, 5, 60.0)],
    disk_free_bytes=100 * GiB,
)
LIMITS = ProcessLimits("shard-1", 10, 1024, 0)
MACHINE = MachineFacts(16 * GiB, 8 * GiB, 0.001, None)


def said(
    facts: Facts = WELL, limits: ProcessLimits = LIMITS, machine: MachineFacts = MACHINE
) -> list[str]:
    return findings(facts, [limits], machine, GiB)


def with_certificate(days_left: float) -> Facts:
    return replace(WELL, certificates=[CertificateFacts("SSL", days_left)])


def test_nothing_is_said_of_a_broker_that_is_well() -> None:
    assert said() == []
    assert said(with_certificate(14)) == []
    assert said(machine=MACHINE._replace(clock_is_synchronized=True)) == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (replace(WELL, processes=[ProcessFacts("sealer", False, 0)]), "sealer does not serve"),
        (replace(WELL, processes=[ProcessFacts("sealer", True, 3)]), "was restarted 3 times"),
        (replace(WELL, disk_free_bytes=GiB), "the disk has 1 GiB free"),
        (replace(WELL, logs=[LOG._replace(wal_room_bytes=0)]), "producers are slowed"),
        (replace(WELL, offsets=[GroupOffset("g", "t", 0, 3, 17, 1.0)]), "has not read 7 records"),
        (replace(WELL, offsets=[GroupOffset("g", "t", 0, 33, 0, 0.0)]), "has committed offset 33"),
        (replace(WELL, offsets=[GroupOffset("g", "t", 0, 15, 5, 4000.0)]), "is 4000 s behind"),
        (with_certificate(13.96), "the listener SSL ends in 14.0 days"),
        (with_certificate(-2), "the listener SSL ended 2.0 days ago"),
        (replace(WELL, missing=("the store",)), "could not be read: the store"),
    ],
)
def test_a_problem_of_the_broker_is_reported_in_a_sentence(facts: Facts, words: str) -> None:
    (sentence,) = said(facts)
    assert words in sentence


def test_problems_of_processes_and_machine_are_reported() -> None:
    limits = ProcessLimits("shard-1", 1000, 1024, 4096)
    machine = MachineFacts(16 * GiB, 1000, 0.5, clock_is_synchronized=False)
    text = "\n".join(said(limits=limits, machine=machine))
    for words in ("1000 of 1024 descriptors", "swapped out", "available", "500 ms", "the clock"):
        assert words in text


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (MACHINE._replace(filer_s=None), "the filer does not answer"),
        (MACHINE._replace(filer_s=2.5), "the filer took 2.5 s"),
        (MACHINE._replace(clock_moved_s=-60), "the clock was set by -60 s"),
        (MACHINE._replace(cgroup_bytes=95, cgroup_bytes_max=100), "of the container's"),
    ],
)
def test_a_slow_filer_a_clock_that_jumps_and_a_full_container_are_said(
    machine: MachineFacts, words: str
) -> None:
    (sentence,) = said(machine=machine)
    assert words in sentence


HELD = PartitionFacts("t", 0, 1, 10, 20, 0, 0, 0, stable_offset=12)
OPEN = OpenTransaction("shop", 4711, 90.4, [("u", 3), ("t", 0)])


def with_transactions(facts: Facts, *transactions: OpenTransaction) -> list[str]:
    return findings(facts, [LIMITS], MACHINE, GiB, transactions)


def test_a_transaction_that_stays_open_is_named() -> None:
    """Use fault 2."""
    assert with_transactions(WELL, OPEN._replace(open_s=59)) == []
    (sentence,) = with_transactions(WELL, OPEN)
    assert "producer 4711 (shop) has had a transaction open for 90 s in u-3 and 1 more" in sentence
    many = [OPEN._replace(producer_id=i) for i in range(5)]
    *_, last = with_transactions(WELL, *many)
    assert last == "2 more transactions are open for over a minute"


def test_a_log_without_room_under_an_open_transaction_is_not_the_filers_fault() -> None:
    """Use fault 2: `smq doctor` said to check the filer's speed."""
    full = replace(WELL, logs=[LOG._replace(wal_room_bytes=0)], partitions=[HELD])
    (sentence,) = with_transactions(full, OPEN._replace(open_s=30))
    assert "producer 4711 (shop) has had a transaction open for 30 s in t-0" in sentence
    assert "filer" not in sentence
    for other in (HELD._replace(stable_offset=20), HELD._replace(log=1)):
        (sentence,) = with_transactions(replace(full, partitions=[other]), OPEN._replace(open_s=30))
        assert "check the filer's speed" in sentence
