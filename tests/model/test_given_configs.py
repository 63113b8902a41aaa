"""What a topic's configs are understood as, and what each refusal says."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from smq.model.config import Config
from smq.model.given_configs import batch_bytes_max, parse, understood

MiB = 1024 * 1024
BROKER = Config(data_dir=Path("/data"), ring_bytes=8 * MiB, wal_segment_bytes=4 * MiB)


def problem_of(configs: Mapping[str, str | None]) -> str | None:
    try:
        understood(configs, BROKER)
    except ValueError as problem:
        return str(problem)
    return None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " 5 ", 5),
        ("retention.bytes", str(2**63 - 1), 2**63 - 1),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("cleanup.policy", "delete", "delete"),
        ("smq.durability", "disk", "disk"),
    ],
)
def test_these_values_are_understood(name: str, text: str, value: object) -> None:
    assert parse(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("retention.hours", "1", "Unknown topic config name: retention.hours"),
        ("retention.ms", "a week", "Not a number of type LONG"),
        ("retention.ms", str(2**63), "Not a number of type LONG"),
        ("retention.ms", "1_000", "Not a number of type LONG"),
        ("retention.ms", "-2", "at least -1"),
        ("max.message.bytes", str(2**31), "Not a number of type INT"),
        ("preallocate", "yes", "either true or false"),
        ("min.cleanable.dirty.ratio", "2", "no more than 1"),
        ("min.cleanable.dirty.ratio", "half", "DOUBLE"),
        ("message.timestamp.type", "createtime", "CreateTime, LogAppendTime"),
        ("cleanup.policy", "burn", "String must be one of: compact, delete"),
        ("cleanup.policy", "compact,burn", "String must be one of: compact, delete"),
        ("min.insync.replicas", "2", "one replica"),
        ("flush.messages", "0", "at least 1"),
        ("segment.bytes", "1048575", "at least 1048576"),
        ("cleanup.policy", "compact,", "String must be one of: compact, delete"),
        ("leader.replication.throttled.replicas", "0", "Must be the literal"),
        ("smq.durability", "fsync", "memory, os, disk"),
        ("smq.seal.bytes", "0", "at least 1"),
    ],
)
def test_these_are_refused_with_the_reason(name: str, text: str, word: str) -> None:
    problem = problem_of({name: text})
    assert problem is not None
    assert word in problem
    assert name in problem


def test_a_null_is_refused() -> None:
    problem = problem_of({"retention.ms": "1", "segment.ms": None})
    assert problem == "Null value not supported for topic configs: segment.ms"


def test_batches_that_fit_in_no_ring_are_refused() -> None:
    assert problem_of({"max.message.bytes": str(batch_bytes_max(BROKER))}) is None
    problem = problem_of({"max.message.bytes": str(batch_bytes_max(BROKER) + 1)})
    assert problem is not None
    assert "raise ring.bytes" in problem


def test_no_configs_are_no_problem() -> None:
    assert problem_of({}) is None


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("cleanup.policy", "delete , compact,delete", "delete,compact"),
        ("flush.ms", "\u0665", "5"),
        ("retention.bytes", "-2", "-2"),
        ("preallocate", " TRUE ", "true"),
        ("min.cleanable.dirty.ratio", "0x1p-1", "0.5"),
        ("min.cleanable.dirty.ratio", "NaN", "NaN"),
        ("follower.replication.throttled.replicas", "0:1, 1:2,", "0:1,1:2,"),
    ],
)
def test_a_value_is_written_as_it_was_understood(name: str, text: str, shown: str) -> None:
    """Data fault 33: whoever reads it later reads one form."""
    own = understood({name: text}, BROKER)
    assert own == {name: shown}
    assert understood(own, BROKER) == own


def test_the_least_lag_is_not_above_the_largest() -> None:
    """Data fault 33."""
    both = {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}
    assert "conflict" in str(problem_of(both))
    assert problem_of(both | {"max.compaction.lag.ms": "6"}) is None


def test_a_value_that_is_refused_by_now_stays_while_others_change() -> None:
    """Data fault 33: a stored topic can be configured still."""
    before = {"segment.bytes": "14", "min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}
    after = before | {"retention.ms": "7"}
    assert understood(after, BROKER, before) == after
    with pytest.raises(ValueError, match="at least 1048576"):
        understood(before | {"segment.bytes": "15"}, BROKER, before)
    with pytest.raises(ValueError, match="conflict"):
        understood(before | {"min.compaction.lag.ms": "7"}, BROKER, before)
