"""Topics as a DataFrame with the columns of Spark's Kafka source, at the speed of Spark's reader.

A DataFrame reflects the topics at its creation; read again to see more. Who reads what is in
`spark_jobs.native`.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from smq.client.names import TopicPartition
from smq.filer.location import Location as Filer
from smq.tables.plan import Ending, Starting, Unreadable
from spark_jobs.native import SCHEMA, PieceReading
from spark_jobs.source.options import (
    BOUNDS,
    EARLIEST,
    LATEST,
    Bound,
    ReadOptions,
    TopicSelection,
    WrongOption,
    batch_options,
)
from spark_jobs.source.reading import planned
from spark_jobs.source.topics import BrokerPlace, SparkTopics as Asked

__all__ = ["SCHEMA", "read_topic"]

Undecodable = Literal["fail", "warn"]
Topics = str | Sequence[str] | re.Pattern[str]


def read_topic(  # noqa: PLR0913  (Options of a reader, all but two by name.)
    spark: SparkSession,
    topic: Topics,
    *,
    data_dir: Path | str,
    starting: Starting = "earliest",
    ending: Ending = "latest",
    undecodable: Undecodable = "fail",
    filer_root: Filer | Path | str | None = None,
    staging: Path | str | None = None,
    tail: Literal["sealed", "live"] = "sealed",
    verify: bool = False,
    typed: bool = False,
    **options: str,
) -> DataFrame:
    """The records of a topic between these offsets (a mapping: by partition).

    `topic` may be several, or a compiled pattern of whole names. `data_dir` is the broker's; it may
    be running. `filer_root` is its setting of that name, if the files are elsewhere. `staging`
    keeps copies of segments in a bucket; without it executors read the bucket. `tail="live"` also
    reads what is not sealed yet, from the running broker. `verify` first compares every file with
    its checksum in the manifest. `undecodable="warn"` leaves out what is gone or cannot be decoded.
    `typed` adds the typed columns of one topic (its `smq.schema`), which are null in older files.
    `options` are bounds of Spark's Kafka source, as text: startingTimestamp="0",
    endingOffsets='{"orders":{"0":9}}' …, for one topic or several.
    Raises Unreadable, StoreError, BrokerError, WrongOption.
    """
    root = filer_root if filer_root is not None else Path(data_dir) / "filer"
    filer = root if isinstance(root, Filer) else Filer(str(root))
    place = BrokerPlace(str(data_dir), Path(data_dir), filer)
    read, until = _bounds({"failOnDataLoss": str(undecodable == "fail"), **options})
    with Asked(place, reads_live=tail == "live") as topics:
        names = topics.selected(_selection(topic))
        if not (isinstance(starting, str) and isinstance(ending, str)):
            if options or not isinstance(topic, str):
                raise WrongOption("starting and ending are of one topic, and without options")
            read = replace(read, starting=_bound(names, starting, EARLIEST))
            until = _bound(names, ending, LATEST)
        schema = topics.schema(_only(topic)) if typed else ""
        ids = topics.ids(names)
        pieces = topics.pieces(planned(topics, names, read, until), ids)
    where = Path(staging) if staging is not None else None
    return PieceReading(spark, place, where, verify, read.fails_on_loss, schema).frame(pieces)


def _only(topic: Topics) -> str:
    if not isinstance(topic, str):
        raise WrongOption("typed=True reads the typed columns of one topic, given by its name")
    return topic


def _bounds(options: dict[str, str]) -> tuple[ReadOptions, Bound]:
    """Parse the bounds given as options of Spark's Kafka source."""
    known = {each.lower() for each in BOUNDS}
    for name in options:
        if name.lower() not in known:
            raise WrongOption(f"read_topic has no option {name}; it has {', '.join(BOUNDS)}")
    return batch_options({"subscribe": "any", "dataDir": "any", **options})


def _selection(topic: Topics) -> TopicSelection:
    if isinstance(topic, re.Pattern):
        return TopicSelection(pattern=topic)
    return TopicSelection(topics=frozenset([topic] if isinstance(topic, str) else topic))


def _bound(names: Sequence[TopicPartition], given: Starting | Ending, default: int) -> Bound:
    """Offsets of some partitions of a topic, and a default for the rest. Raises Unreadable."""
    offsets = dict.fromkeys(names, default)
    for partition, offset in ({} if isinstance(given, str) else given).items():
        name = TopicPartition(names[0].topic, partition)
        if name not in offsets:
            raise Unreadable(f"{name.topic} has no partition {partition}")
        offsets[name] = offset
    return Bound(offsets=offsets)
