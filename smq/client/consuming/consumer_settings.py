"""The settings of a consumer, checked when they are made."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from smq.client.arguments import duration, text, topic_name, whole_number
from smq.client.kafka.offsets import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Begin,
    place_of,
    wanted_of,
)

MiB = 1024 * 1024
INT31_END = 2**31
BATCH_BYTES_MAX = MiB  # Kafka's max.partition.fetch.bytes; and what a core's cache can hold.
INFLATED_BYTES_MAX = 128 * MiB  # More than librdkafka inflates by default.
SESSION_TIMEOUT_S = 45.0  # Kafka's default.
POLL_INTERVAL_S_MAX = 300.0  # Kafka's default.
RANGE, ROUNDROBIN, COOPERATIVE = ASSIGNORS = "range", "roundrobin", "cooperative-sticky"
ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
ISOLATION_LEVEL = "read_uncommitted"  # Kafka's default.
DEFAULT_ASSIGNORS = (RANGE, ROUNDROBIN)  # librdkafka's and kafka-python's; Java knows both.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """See `Client.consumer`. Raises TypeError, ValueError with the setting's name."""

    group: str | None = None
    group_instance_id: str | None = None
    start: Begin = "latest"
    assignors: Sequence[str] = DEFAULT_ASSIGNORS
    auto_commit_s: float | None = None
    session_timeout_s: float = SESSION_TIMEOUT_S
    poll_interval_s_max: float = POLL_INTERVAL_S_MAX
    batch_bytes_max: int = BATCH_BYTES_MAX
    inflated_bytes_max: int = INFLATED_BYTES_MAX
    spin_us: int = 0
    isolation_level: str = ISOLATION_LEVEL
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if wanted_of(self.start) is None:
            place_of(self.start)
        _check_name("group", self.group)
        _check_name("group_instance_id", self.group_instance_id)
        if self.group_instance_id is not None and self.group is None:
            raise ValueError("group_instance_id: only a consumer with a group is a member of one")
        _check_assignors(self.assignors)
        if self.auto_commit_s is not None and self.group is None:
            raise ValueError("auto_commit_s: only a consumer with a group can commit")
        if self.auto_commit_s is not None:
            duration("auto_commit_s", self.auto_commit_s, above=0)
        duration("session_timeout_s", self.session_timeout_s, above=0)
        duration("poll_interval_s_max", self.poll_interval_s_max, above=0)
        whole_number("batch_bytes_max", self.batch_bytes_max, 1, INT31_END)
        whole_number("inflated_bytes_max", self.inflated_bytes_max, 1, INT31_END)
        whole_number("spin_us", self.spin_us, 0, INT31_END)
        if not isinstance(self.topic_ids, Mapping):
            raise TypeError(f"topic_ids maps names to ids, and is {self.topic_ids!r}")
        if text("isolation_level", self.isolation_level) not in ISOLATION_LEVELS:
            allowed = [*ISOLATION_LEVELS]
            raise ValueError(f"isolation_level is {self.isolation_level!r}, not one of {allowed}")


def checked_topics(topics: Any) -> list[str]:  # noqa: ANN401  (whatever was given)
    """The names, sorted. Raises TypeError, ValueError."""
    if not isinstance(topics, str | Sequence | Set) or isinstance(topics, bytes):
        raise TypeError(f"topics is a name or some names, not {type(topics).__name__}")
    names = [topics] if isinstance(topics, str) else topics
    return sorted({topic_name("a topic", each) for each in names})


def _check_name(name: str, value: str | None) -> None:
    if value is not None and text(name, value) == "":
        raise ValueError(f"{name}: an empty string is no name; None is for none")


def _check_assignors(assignors: Any) -> None:  # noqa: ANN401
    if not isinstance(assignors, Sequence) or isinstance(assignors, str | bytes):
        raise TypeError(f"assignors is a list of names, not {type(assignors).__name__}")
    if not assignors:
        raise ValueError(f"assignors is empty; it should have some of {[*ASSIGNORS]}")
    for each in assignors:
        if text("an assignor", each) not in ASSIGNORS:
            raise ValueError(f"assignors has {each!r}; each should be one of {[*ASSIGNORS]}")
