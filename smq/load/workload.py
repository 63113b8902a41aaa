"""A workload: what to send and read, in the fields of the OpenMessaging Benchmark.

https://github.com/openmessaging/benchmark, io.openmessaging.benchmark.Workload. Fields that the
benchmark lacks are marked as ours. A field with a list of values makes a step for each; several
such fields make a step for each combination.
"""

import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = Any  # A YAML value.
MAX = "max"
STAMP_BYTES = 8
KAFKA, SDK, REFERENCE = "kafka", "sdk", "reference"
CLIENTS = (KAFKA, SDK, REFERENCE)
MINUTE_S = 60
GB = 10**9
# Fields of the OpenMessaging Benchmark without effect here: payloads are always generated.
WITHOUT_EFFECT = {
    "payloadFile",
    "useRandomizedPayloads",
    "randomizedPayloadPoolSize",
}


class BadWorkload(Exception):
    """A workload that cannot be run; the sentence says why."""


class FieldRule(NamedTuple):
    """A field's rule: `read` returns its value, or raises ValueError with the accepted values."""

    name: str
    read: Callable[[Value], Any]
    words: str


def _count(low: int) -> Callable[[Value], int]:
    def read(value: Value) -> int:
        if type(value) is not int or value < low:
            raise ValueError(f"a whole number of at least {low}")
        return value

    return read


def _number(low: float, high: float | None = None) -> Callable[[Value], float]:
    words = f"a number of at least {low:g}"
    if high is not None:
        words += f", at most {high:g}"
    most = sys.float_info.max if high is None else high

    def read(value: Value) -> float:
        if type(value) not in {int, float} or not low <= value <= most:
            raise ValueError(words)
        return float(value)

    return read


def _rate(value: Value) -> float | None:
    """Messages a second; None is unlimited."""
    if value == MAX:
        return None
    try:
        return _number(0)(value)
    except ValueError:
        raise ValueError(f"a number of messages a second, or {MAX}") from None


def _text_map(value: Value) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value):
        raise ValueError("names and their values")
    spoken = {True: "true", False: "false"}
    return {
        name: spoken[each] if isinstance(each, bool) else str(each) for name, each in value.items()
    }


def _one_of(*words: str) -> Callable[[Value], str]:
    def read(value: Value) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return str(value)

    return read


def _text(value: Value) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def _rule(name: str, read: Callable[[Value], Any], default: Any, words: str) -> Any:  # noqa: ANN401
    rule = {"rule": FieldRule(name, read, words)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=rule)
    return field(default=default, metadata=rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One step: every field has one value. Rates are totals over all producers."""

    name: str = _rule("name", _text, "", "What the results are filed under.")
    topics: int = _rule("topics", _count(1), 1, "Topics, made for the run and deleted after it.")
    partitions_per_topic: int = _rule("partitionsPerTopic", _count(1), 1, "Partitions of each.")
    message_size: int = _rule(
        "messageSize", _count(STAMP_BYTES), 1024, "Bytes of a message's value; at least 8."
    )
    random_bytes_ratio: float = _rule(
        "randomBytesRatio", _number(0, 1), 0.5, "How much of a value does not compress."
    )
    key_distributor: str = _rule("keyDistributor", _one_of("NO_KEY"), "NO_KEY", "Only `NO_KEY`.")
    producers_per_topic: int = _rule("producersPerTopic", _count(1), 1, "Producers of each topic.")
    subscriptions_per_topic: int = _rule(
        "subscriptionsPerTopic", _count(0), 1, "Groups that read each topic, all of it."
    )
    consumer_per_subscription: int = _rule(
        "consumerPerSubscription", _count(1), 1, "Members of each group."
    )
    producer_rate: float | None = _rule(
        "producerRate",
        _rate,
        0.0,
        "Messages a second, of all producers together. `0` searches the sustainable rate; `max` is "
        "as fast as they are acknowledged (ours).",
    )
    consumer_backlog_size_gb: float = _rule(
        "consumerBacklogSizeGB",
        _number(0),
        0.0,
        "So much is produced before consumers start; the run ends when they have caught up.",
    )
    test_duration_minutes: float = _rule(
        "testDurationMinutes", _number(0.001), 1.0, "How long is measured; fractions are allowed."
    )
    warmup_duration_minutes: float = _rule(
        "warmupDurationMinutes", _number(0), 0.1, "The same load before that, not counted."
    )
    backlog_producer_rate: float | None = _rule(
        "backlogProducerRate", _rate, None, "Ours: the rate at which the backlog is produced."
    )
    client: str = _rule(
        "client",
        _one_of(*CLIENTS),
        KAFKA,
        "Ours: `kafka` is librdkafka; `sdk` is SMQ's SDK, through shared memory where the broker "
        "is on this host; `reference` is the SDK with payloads by reference.",
    )
    idle_connections: int = _rule(
        "idleConnections", _count(0), 0, "Ours: connections that ask something now and then."
    )
    commits_per_second: float = _rule(
        "commitsPerSecond", _number(0), 0.0, "Ours: offset commits of each consumer, awaited."
    )
    rebalance_every_seconds: float = _rule(
        "rebalanceEverySeconds",
        _number(0),
        0.0,
        "Ours: how often a consumer leaves its group and joins it again.",
    )
    kill_every_seconds: float = _rule(
        "killEverySeconds",
        _number(0),
        0.0,
        "Ours: how often one of the broker's processes is killed (`kill -9`), in turn; SMQ on "
        "this host only.",
    )
    topic_config: Mapping[str, str] = _rule("topicConfig", _text_map, {}, "Ours: of each topic.")
    producer_config: Mapping[str, str] = _rule(
        "producerConfig", _text_map, {}, "Ours: librdkafka's settings of producers."
    )
    consumer_config: Mapping[str, str] = _rule(
        "consumerConfig", _text_map, {}, "Ours: librdkafka's settings of consumers."
    )

    @property
    def searches(self) -> bool:
        """Whether to search the sustainable rate."""
        return self.producer_rate == 0

    @property
    def backlog_messages(self) -> int:
        return int(self.consumer_backlog_size_gb * GB / self.message_size)

    @property
    def warmup_seconds(self) -> float:
        return self.warmup_duration_minutes * MINUTE_S

    @property
    def test_seconds(self) -> float:
        return self.test_duration_minutes * MINUTE_S

    def at_rate(self, rate: float | None) -> "Workload":
        """The same at another rate."""
        return replace(self, producer_rate=rate)

    def trial(self, rate: float | None, test_s: float, warmup_s: float) -> "Workload":
        """The same at another rate, with these durations as upper bounds."""
        return replace(
            self,
            producer_rate=rate,
            test_duration_minutes=min(self.test_duration_minutes, test_s / MINUTE_S),
            warmup_duration_minutes=min(self.warmup_duration_minutes, warmup_s / MINUTE_S),
        )


class WorkloadStep(NamedTuple):
    """A workload, and the values that distinguish this step in its document."""

    changes: Mapping[str, Value]
    workload: Workload


RULES: Mapping[str, tuple[str, FieldRule]] = {
    each.metadata["rule"].name: (each.name, each.metadata["rule"]) for each in fields(Workload)
}


def steps_of(
    document: object, name: str, overrides: Mapping[str, Value] | None = None
) -> list[WorkloadStep]:
    """The steps of a YAML document, in its order. Raises BadWorkload.

    `name` is for a document that has none; `overrides` replace fields.
    """
    if not isinstance(document, dict):
        raise BadWorkload("a workload is a list of fields and their values, such as `topics: 1`")
    values = {"name": name, **document, **(overrides or {})}
    for each in values:
        if each not in RULES and each not in WITHOUT_EFFECT:
            raise BadWorkload(f"{each}: there is no such field; there are {', '.join(RULES)}")
    known = {each: value for each, value in values.items() if each in RULES}
    swept = [each for each, value in known.items() if isinstance(value, list)]
    if not all(known[each] for each in swept):
        raise BadWorkload("a list of values has at least one")
    fixed = {each: value for each, value in known.items() if each not in swept}
    steps = []
    for values_of_step in itertools.product(*(known[each] for each in swept)):
        changes = dict(zip(swept, values_of_step, strict=True))
        steps.append(WorkloadStep(changes, _workload({**fixed, **changes})))
    return steps


def _workload(values: Mapping[str, Value]) -> Workload:
    read = {}
    for name, value in values.items():
        attribute, rule = RULES[name]
        try:
            read[attribute] = rule.read(value)
        except ValueError as error:
            raise BadWorkload(f"{name} is {value!r}; it takes {error}") from None
    workload = Workload(**read)
    if workload.consumer_backlog_size_gb and not workload.subscriptions_per_topic:
        raise BadWorkload("consumerBacklogSizeGB needs subscriptionsPerTopic: nobody reads it")
    if workload.consumer_backlog_size_gb and workload.searches:
        raise BadWorkload("consumerBacklogSizeGB needs a producerRate other than 0")
    return workload


def documentation() -> str:
    """The fields as a table of Markdown."""
    rows = ["| field | default | meaning |", "|---|---|---|"]
    for name, (attribute, rule) in RULES.items():
        default = _spoken(getattr(Workload(), attribute))
        rows.append(f"| `{name}` | {default} | {rule.words} |")
    return "\n".join(rows) + "\n"


def _spoken(value: object) -> str:
    if value is None:
        return f"`{MAX}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`" if value else ""
