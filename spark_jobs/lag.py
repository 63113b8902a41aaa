"""How far a Spark stream is behind the topics it reads, from its checkpoint.

    smq spark lag CHECKPOINT --data-dir DIR

Prints a line of JSON for each partition. The checkpoint may be of `format("smq")` or of Spark's
Kafka source: both write the same offsets. Starts no Spark.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

from smq.client.names import TopicPartition
from smq.tables.plan import Unreadable
from spark_jobs.session import refusals
from spark_jobs.source.options import BrokerLocation
from spark_jobs.source.ranges import from_json
from spark_jobs.source.topics import Offsets, SparkTopics, find_place


class StreamLag(NamedTuple):
    """A partition: the stream's position and the partition's end."""

    topic: str
    partition: int
    offset: int
    end: int
    lag: int


def offsets_of(checkpoint: Path) -> Offsets:
    """The last planned offsets of a stream, over all its sources. Raises Unreadable."""
    batches = [int(each.name) for each in (checkpoint / "offsets").glob("*") if each.name.isdigit()]
    if not batches:
        raise Unreadable(f"{checkpoint} is not the checkpoint of a stream that has started")
    path = checkpoint / "offsets" / str(max(batches))
    found: Offsets = {}
    # "v1", the batch's metadata, then a line per source: "-" for one without offsets.
    for line in path.read_text().splitlines()[2:]:
        if line == "-":
            continue
        try:
            found |= from_json(json.loads(line))
        except (ValueError, AttributeError) as error:
            raise Unreadable(f"{path}: {line!r} are not the offsets of topics") from error
    return found


def lags(offsets: Offsets, ends: Offsets) -> list[StreamLag]:
    """A row per partition; a new partition counts from offset 0."""
    return [
        StreamLag(*name, offsets.get(name, 0), end, max(0, end - offsets.get(name, 0)))
        for name, end in sorted(ends.items())
    ]


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="smq spark lag", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--data-dir", required=True, help="the broker's data directory")
    parser.add_argument("--tail", choices=["live", "sealed"], default="live", help="[live]")
    given = parser.parse_args()
    with refusals():
        offsets = offsets_of(given.checkpoint)
        place = find_place(BrokerLocation(None, given.data_dir, None))
        with SparkTopics(place, reads_live=given.tail == "live") as topics:
            counts = topics.counts()
            there = {each.topic for each in offsets}
            names = [
                TopicPartition(topic, each)
                for topic in sorted(there & counts.keys())
                for each in range(counts[topic])
            ]
            for row in lags(offsets, topics.ends(names)):
                sys.stdout.write(json.dumps(row._asdict()) + "\n")


if __name__ == "__main__":
    main()
