"""A table that a job rebuilds from all records of a topic, partition by partition.

    TABLE/_progress.json         what the table is made of, and the completed partitions of `_next`
    TABLE/_next/partition=<p>/   the new table, until it is complete
    TABLE/partition=<p>/         the table

The first run records each partition's end offset, and later runs use the same ends until the table
is complete: after a kill the next run writes what is missing. Only then do the new partitions
replace the old ones, one by one. A run that finds nothing new in the topic does nothing. Readers
skip names with an underscore.
"""

import json
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from smq.filer.location import Location
from smq.tables.plan import Unreadable
from spark_jobs.durable import check_is_new, load, save
from spark_jobs.places import TopicArguments, add_places, places_in
from spark_jobs.read import read_topic
from spark_jobs.source.options import TopicSelection
from spark_jobs.source.topics import BrokerPlace, SparkTopics

FORMAT = 1
PROGRESS = "_progress.json"
NEXT = "_next"

# Computes a job's rows from records; `scratch` is a working directory of this table.
Rows = Callable[[DataFrame], DataFrame]
Prepare = Callable[[DataFrame, Path], Rows]


@dataclass(frozen=True, slots=True)
class Made:
    """The inputs of a table.

    topic_id  distinguishes topics that were deleted and created again
    options   the job's options that determine the rows
    ranges    by partition: the first offset and the end
    """

    job: str
    topic: str
    topic_id: str
    options: dict[str, object]
    ranges: dict[str, list[int]]

    def is_continued_by(self, now: "Made") -> bool:
        """Whether a later run can complete this: the same job, and no record has been deleted."""
        same = (self.job, self.topic, self.topic_id, self.options)
        if same != (now.job, now.topic, now.topic_id, now.options):
            return False
        return all(
            partition in now.ranges and now.ranges[partition][0] <= start
            for partition, (start, _) in self.ranges.items()
        )


@dataclass(slots=True)
class Progress:
    """A table's progress. rows: by completed partition of `_next`."""

    made: Made
    rows: dict[str, int] = field(default_factory=dict)
    is_prepared: bool = False
    is_complete: bool = False


class Table:
    """A table in its own directory. `rows` is by partition, see `Progress`."""

    def __init__(self, directory: Path, now: Made) -> None:
        """Raises Unreadable if the directory has something else."""
        self.directory, self._path = directory, directory / PROGRESS
        self.next = directory / NEXT
        found = load(self._path)
        if found is None:
            check_is_new(directory)
            self.progress = self._begin(now)
            return
        before = _progress(self._path, found)
        if (before.made.job, before.made.topic) != (now.job, now.topic):
            raise Unreadable(
                f"{directory} is the table of {before.made.job} {before.made.topic}; name another "
                "directory"
            )
        is_over = before.is_complete and before.made != now
        if is_over or not before.made.is_continued_by(now):
            before = self._begin(now)
        self.progress = before

    def _begin(self, now: Made) -> Progress:
        """Start a new table; the old one stays until the new one is complete."""
        self.directory.mkdir(parents=True, exist_ok=True)
        progress = Progress(now)
        save(self._path, {"format": FORMAT, **asdict(progress)})
        shutil.rmtree(self.next, ignore_errors=True)
        return progress

    def save(self) -> None:
        """Make the progress durable."""
        save(self._path, {"format": FORMAT, **asdict(self.progress)})

    def replace(self) -> None:
        """Replace the old partitions by the new ones; after a kill, replace the rest.

        The table is complete on return.
        """
        for old in self.directory.glob("partition=*"):
            if old.name.partition("=")[2] not in self.progress.rows:
                shutil.rmtree(old)
        for partition in self.progress.rows:
            new = self.next / f"partition={partition}"
            if new.exists():
                target = self.directory / new.name
                shutil.rmtree(target, ignore_errors=True)
                new.rename(target)
        shutil.rmtree(self.next, ignore_errors=True)
        self.progress.is_complete = True
        self.save()


def _progress(path: Path, found: Mapping[str, object]) -> Progress:
    try:
        if found["format"] != FORMAT:
            raise Unreadable(f"{path} has format {found['format']}; this version reads {FORMAT}")
        rest = {name: value for name, value in found.items() if name != "format"}
        return Progress(**rest | {"made": Made(**found["made"])})  # type: ignore[arg-type]
    except (KeyError, TypeError) as error:
        raise Unreadable(f"{path} is not the progress of a job") from error


def rebuild(
    spark: SparkSession,
    table: Table,
    read: Callable[[Mapping[int, list[int]]], DataFrame],
    prepare: Prepare,
) -> None:
    """Make what is missing of a table. `read` gives the records of these ranges, by partition.

    Says a line of JSON for each partition.
    """
    progress = table.progress
    if progress.is_complete:
        return
    ranges = {int(partition): each for partition, each in progress.made.ranges.items()}
    if len(progress.rows) < len(ranges):
        scratch = table.next / "_scratch"
        if not progress.is_prepared:
            shutil.rmtree(scratch, ignore_errors=True)
        rows_of = prepare(read(ranges), scratch)
        progress.is_prepared = True
        table.save()
        nothing = {partition: [end, end] for partition, (_, end) in ranges.items()}
        for partition, wanted in ranges.items():
            if str(partition) in progress.rows:
                continue
            records = read(nothing | {partition: wanted})
            path = str(table.next / f"partition={partition}")
            rows_of(records).drop("partition").write.mode("overwrite").parquet(path)
            progress.rows[str(partition)] = spark.read.parquet(path).count()
            table.save()
            _say(partition, progress.rows[str(partition)])
    table.replace()


def _say(partition: int, rows: int) -> None:
    sys.stdout.write(json.dumps({"partition": partition, "rows": rows}) + "\n")
    sys.stdout.flush()


def add_options(parser: ArgumentParser) -> None:
    """Add the options that all such jobs have."""
    add_places(parser)
    parser.add_argument("--output", type=Path, required=True, help="the table's directory")
    parser.add_argument("--tail", choices=["live", "sealed"], default="live", help="[live]")


def run(
    spark: SparkSession, job: str, given: Namespace, options: dict[str, object], prepare: Prepare
) -> None:
    """The job with these arguments (see `add_options`). Raises Unreadable, StoreError."""
    places = places_in(given)
    table = Table(given.output, _made(job, given.topic, places, given.tail, options))

    def read(ranges: Mapping[int, list[int]]) -> DataFrame:
        starting = {partition: start for partition, (start, _) in ranges.items()}
        ending = {partition: end for partition, (_, end) in ranges.items()}
        return read_topic(
            spark, given.topic, **places, tail=given.tail, starting=starting, ending=ending
        )

    rebuild(spark, table, read, prepare)


def _made(
    job: str, topic: str, places: TopicArguments, tail: str, options: dict[str, object]
) -> Made:
    """The inputs of a table built now."""
    data_dir = places["data_dir"]
    filer = Location(places["filer_root"] or str(data_dir / "filer"))
    place = BrokerPlace(str(data_dir), data_dir, filer)
    with SparkTopics(place, reads_live=tail == "live") as topics:
        names = topics.selected(TopicSelection(topics=frozenset([topic])))
        starts, ends = topics.starts(names), topics.ends(names)
        (topic_id,) = topics.ids(names[:1]).values()
    ranges = {
        str(each.partition): [min(starts[each], ends[each]), ends[each]] for each in sorted(names)
    }
    return Made(job, topic, topic_id, options, ranges)
