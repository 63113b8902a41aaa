"""The options of `format("smq")`: those of Spark's Kafka source, and the location of SMQ's files.

Names, defaults, precedence and refusals follow KafkaSourceProvider of Spark 4. Option names ignore
case. A time takes precedence over times by partition, and these over offsets.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from smq.client.consuming.consumer_settings import INFLATED_BYTES_MAX
from smq.client.locate import AUTO, KAFKA
from smq.client.names import TopicPartition
from smq.client.secure.security import Security, security_of

EARLIEST, LATEST = -2, -1  # Special offsets: the first record and the end.
STRATEGIES = ("assign", "subscribe", "subscribePattern")
EXAMPLE_OFFSETS = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
EXAMPLE_IDS = '{"topicA":"0123456789abcdef0123456789abcdef"}'
EXAMPLE_PARTITIONS = '{"topicA":[0,1],"topicB":[0,1]}'
BOUNDS = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
)
REFUSED = {
    "auto.offset.reset": "set startingOffsets to earliest or latest instead",
    "key.deserializer": "keys are bytes; cast them in the DataFrame",
    "value.deserializer": "values are bytes; cast them in the DataFrame",
    "enable.auto.commit": "the source commits no offsets by itself",
    "interceptor.classes": "the source has no interceptors",
}
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_TRUE_FALSE = {"true": True, "false": False}


class WrongOption(ValueError):
    """An invalid option; the message names it, its value and the allowed values."""


class TopicSelection(NamedTuple):
    """The topics to read: a list, a pattern of whole names, or named partitions."""

    topics: frozenset[str] = frozenset()
    pattern: str | re.Pattern[str] | None = None
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a read starts or ends: exactly one of these.

    everywhere  an offset for all partitions: EARLIEST or LATEST
    offsets     by partition, also EARLIEST and LATEST
    time        milliseconds since 1970, for all partitions
    times       by partition
    """

    everywhere: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    time: int | None = None
    times: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class BrokerLocation:
    """A broker's location in the options: `bootstrap` or a data directory, or both.

    `filer_…` are its settings `filer.root`, `filer.s3.endpoint`, `.region`, `.credentials`.
    `config` is a file of properties that each node has, which says how to connect. With
    `transport` KAFKA nothing is read but by Kafka's protocol; with AUTO also what is on this host.
    """

    bootstrap: str | None
    data_dir: str | None
    filer_root: str | None
    filer_endpoint: str | None = None
    filer_region: str | None = None
    filer_credentials: str | None = None
    config: str | None = None
    transport: str = AUTO

    @property
    def security(self) -> Security:
        """How to connect. Raises WrongOption."""
        try:
            return security_of(self.config)
        except ValueError as error:
            raise WrongOption(f"clientConfig: {error}") from error


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options that a batch read and a stream share."""

    location: BrokerLocation
    selection: TopicSelection
    starting: Bound
    late_start: Literal["error", "latest"]
    reads_live: bool
    fails_on_loss: bool
    partitions_min: int | None
    records_per_partition_max: int | None
    poll_timeout_ms: int
    inflated_bytes_max: int
    topic_ids: dict[str, str]


@dataclass(frozen=True, slots=True)
class BatchAdmission:
    """The maximum records of a stream's batch, and how long it waits for the minimum."""

    offsets_max: int | None
    offsets_min: int | None
    delay_ms_max: int
    group: str | None = None
    """Where a stream commits how far it has come, if it does."""


class _Given:
    """Options by case-insensitive name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def get(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def number(self, name: str) -> int | None:
        """A positive integer."""
        text = self.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"\d{1,18}", text.strip()) or int(text) == 0:
            raise WrongOption(f"{name} is {text!r}; it must be a positive whole number")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.get(name)
        if text is None:
            return default
        if text.lower() not in _TRUE_FALSE:
            raise WrongOption(f"{name} is {text!r}; it must be true or false")
        return _TRUE_FALSE[text.lower()]

    def choice(self, name: str, *allowed: str) -> str:
        """One of the allowed words; the first is the default."""
        text = self.get(name)
        if text is None:
            return allowed[0]
        if text.lower() not in allowed:
            raise WrongOption(f"{name} is {text!r}; it must be {' or '.join(allowed)}")
        return text.lower()

    def refuse_kafkas(self) -> None:
        for name, instead in REFUSED.items():
            if self.get(f"kafka.{name}") is not None:
                raise WrongOption(f"Kafka option '{name}' is not supported: {instead}")


def include_headers(options: Mapping[str, str]) -> bool:
    """Whether rows have headers."""
    return _Given(options).flag("includeHeaders", default=False)


def typed_topic(options: Mapping[str, str]) -> str | None:
    """The topic whose typed columns are requested, or None. Raises WrongOption."""
    given = _Given(options)
    if not given.flag("typed", default=False):
        return None
    selection = _selection(given)
    names = {*selection.topics, *(each.topic for each in selection.partitions)}
    if len(names) != 1:
        raise WrongOption(
            "typed is 'true'; subscribe must then be one topic, or assign partitions of one"
        )
    return names.pop()


def is_plan(options: Mapping[str, str]) -> bool:
    """Whether a stream's rows are the ranges of its batches, not records."""
    return _Given(options).choice("mode", "rows", "plan") == "plan"


def location(options: Mapping[str, str]) -> BrokerLocation:
    """The broker's location. Raises WrongOption."""
    given = _Given(options)
    found = BrokerLocation(
        given.get("kafka.bootstrap.servers"),
        given.get("dataDir"),
        given.get("filerRoot"),
        given.get("filerEndpoint"),
        given.get("filerRegion"),
        given.get("filerCredentials"),
        given.get("clientConfig"),
        given.choice("transport", AUTO, KAFKA),
    )
    if not found.bootstrap and not found.data_dir:
        raise WrongOption(
            "Option 'kafka.bootstrap.servers' must be specified (the broker's host:port), or "
            "'dataDir' (its data directory)"
        )
    return found


def pace(options: Mapping[str, str]) -> int | None:
    """The maximum records per second of a stream's sink. Raises WrongOption."""
    return _Given(options).number("maxRecordsPerSecond")


def batch_options(options: Mapping[str, str]) -> tuple[ReadOptions, Bound]:
    """The options of `read`, and where it ends. Raises WrongOption."""
    given = _Given(options)
    read = _read_options(given, EARLIEST)
    ending = _bound(given, "ending", LATEST)
    _refuse_place("starting", read.starting, LATEST)
    _refuse_place("ending", ending, EARLIEST)
    return read, ending


def stream_options(options: Mapping[str, str]) -> tuple[ReadOptions, BatchAdmission]:
    """The options of `readStream`, and how it admits records. Raises WrongOption."""
    given = _Given(options)
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if given.get(name) is not None:
            raise WrongOption(f"{name} is not valid in streaming queries")
    admission = BatchAdmission(
        given.number("maxOffsetsPerTrigger"),
        given.number("minOffsetsPerTrigger"),
        _milliseconds("maxTriggerDelay", given.get("maxTriggerDelay") or "15m"),
        given.get("commitGroup"),
    )
    fewest, most = admission.offsets_min, admission.offsets_max
    if fewest is not None and most is not None and fewest > most:
        raise WrongOption(
            f"The value of minOffsetsPerTrigger ({fewest}) is higher than the maxOffsetsPerTrigger "
            f"({most})"
        )
    read = _read_options(given, LATEST)
    if admission.group is not None and not (admission.group and read.reads_live):
        raise WrongOption(
            f"commitGroup is {admission.group!r}; it must be a group's name, and tail be live"
        )
    return read, admission


def _read_options(given: _Given, default_start: int) -> ReadOptions:
    given.refuse_kafkas()
    late = given.choice("startingOffsetsByTimestampStrategy", "error", "latest")
    place = location(given._options)  # noqa: SLF001  (of this file)
    reads_live = given.choice("tail", "live", "sealed") == "live"
    if place.transport == KAFKA and not reads_live:
        raise WrongOption(
            "tail is 'sealed', which reads files; with transport=kafka it must be live"
        )
    return ReadOptions(
        location=place,
        selection=_selection(given),
        starting=_bound(given, "starting", default_start),
        late_start="latest" if late == "latest" else "error",
        reads_live=reads_live,
        fails_on_loss=given.flag("failOnDataLoss", default=True),
        partitions_min=given.number("minPartitions"),
        records_per_partition_max=given.number("maxRecordsPerPartition"),
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs") or 120_000,
        inflated_bytes_max=given.number("inflatedBytesMax") or INFLATED_BYTES_MAX,
        topic_ids=_topic_ids(given.get("topicIds")),
    )


def _selection(given: _Given) -> TopicSelection:
    named = [each for each in STRATEGIES if given.get(each) is not None]
    if len(named) != 1:
        count = "One" if not named else "Only one"
        raise WrongOption(
            f"{count} of the following options must be specified: {', '.join(STRATEGIES)}"
        )
    value = given.get(named[0]) or ""
    if named[0] == "assign":
        return TopicSelection(partitions=_partitions(value))
    if named[0] == "subscribe":
        topics = frozenset(each.strip() for each in value.split(",") if each.strip())
        if not topics:
            raise WrongOption(f"subscribe is {value!r}; it must be topics, separated by commas")
        return TopicSelection(topics=topics)
    if not value.strip():
        raise WrongOption("subscribePattern is empty; it must be a regular expression")
    try:
        re.compile(value)
    except re.error as error:
        raise WrongOption(f"subscribePattern is {value!r}: {error}") from error
    return TopicSelection(pattern=value)


def _topic_ids(text: str | None) -> dict[str, str]:
    """Ids by topic, as 32 hexadecimal digits."""
    found = {} if text is None else _json("topicIds", text, EXAMPLE_IDS)
    for each in found.values():
        if not isinstance(each, str) or not re.fullmatch("[0-9a-f]{32}", each):
            raise _expected("topicIds", text or "", EXAMPLE_IDS)
    return found


def _partitions(text: str) -> frozenset[TopicPartition]:
    found = _json("assign", text, EXAMPLE_PARTITIONS)
    names: set[TopicPartition] = set()
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(type(each) is int for each in partitions):
            raise _expected("assign", text, EXAMPLE_PARTITIONS)
        names |= {TopicPartition(topic, each) for each in partitions}
    if not names:
        raise _expected("assign", text, EXAMPLE_PARTITIONS)
    return frozenset(names)


def _bound(given: _Given, side: str, default: int) -> Bound:
    name = f"{side}Timestamp"
    if (text := given.get(name)) is not None:
        if not re.fullmatch(r"\d{1,18}", text.strip()):
            raise WrongOption(f"{name} is {text!r}; it must be milliseconds since 1970")
        return Bound(time=int(text))
    name = f"{side}OffsetsByTimestamp"
    if (text := given.get(name)) is not None:
        return Bound(times=by_partition(name, text, least=0))
    name = f"{side}Offsets"
    text = given.get(name)
    words = {None: default, "earliest": EARLIEST, "latest": LATEST}
    word = None if text is None else text.strip().lower()
    if word in words:
        return Bound(everywhere=words[word])
    return Bound(offsets=by_partition(name, text or "", least=EARLIEST))


def by_partition(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    """Numbers by topic and partition, in the format of Kafka's source. Raises WrongOption."""
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json(name, text, EXAMPLE_OFFSETS).items():
        if not isinstance(numbers, dict):
            raise _expected(name, text, EXAMPLE_OFFSETS)
        for partition, number in numbers.items():
            is_number = type(number) is int and least <= number < 2**63
            if not partition.isdecimal() or not is_number:
                raise _expected(name, text, EXAMPLE_OFFSETS)
            found[TopicPartition(topic, int(partition))] = number
    return found


def _json(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _expected(name, text, example) from error
    if not isinstance(found, dict):
        raise _expected(name, text, example)
    return found


def _expected(name: str, text: str, example: str) -> WrongOption:
    return WrongOption(f"{name}: expected e.g. {example}, got {text}")


def _refuse_place(side: str, bound: Bound, place: int) -> None:
    word = "latest" if place == LATEST else "earliest"
    if bound.everywhere == place:
        raise WrongOption(f"{side} offset can't be {word} for batch queries")
    for name, offset in (bound.offsets or {}).items():
        if offset == place:
            raise WrongOption(
                f"{side}Offsets for {name.topic}-{name.partition} can't be {word} for batch queries"
            )


def _milliseconds(name: str, text: str) -> int:
    """A duration in Spark's format: 15m, 10s, 500ms; a bare number is milliseconds."""
    found = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", text.strip().lower())
    unit = _UNITS_MS.get(found[2] or "ms") if found else None
    if found is None or unit is None:
        raise WrongOption(f"{name} is {text!r}; it must be a duration such as 500ms, 10s or 15m")
    return int(found[1]) * unit
