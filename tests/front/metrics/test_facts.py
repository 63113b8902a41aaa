"""Facts have a default for everything that may not be known."""

from smq.front.metrics.facts import Facts


def test_nothing_is_known_of_a_broker_that_does_not_run() -> None:
    facts = Facts(version="1", is_ready=False, started_ms=0)
    known = [facts.processes, facts.partitions, facts.offsets, facts.members]
    assert not any(known)
