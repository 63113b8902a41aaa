"""A topic as a stream at the speed of Spark's own reader: Python plans, Spark reads.

    stream = stream_topic(spark, "orders", dataDir=data_dir, startingOffsets="earliest")
    query = stream.foreach_batch(write, checkpoint="/checkpoints/orders", availableNow=True)

The stream itself has no records, only the range of each partition (`format("smq")` with
mode=plan). For each batch, `write(rows, batch_id)` gets a DataFrame of these ranges, made like
`read_topic`'s. Spark's checkpoint records which ranges are done: after a crash the last batch is
repeated with the same ranges, so a `write` that replaces the batch's earlier output is
exactly once.

Planning runs no Spark job: the ranges are the input of the batch's only task, and the driver takes
them from there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from smq.client.names import TopicPartition
from spark_jobs.native import PieceReading
from spark_jobs.source.options import WrongOption, stream_options, typed_topic
from spark_jobs.source.reading import PLAN_COLUMNS, Ranges
from spark_jobs.source.topics import SparkTopics, find_place

Then = Callable[[DataFrame, int], None]


def stream_topic(
    spark: SparkSession,
    topic: str | Sequence[str],
    *,
    staging: Path | str | None = None,
    verify: bool = False,
    **options: object,
) -> "TopicStream":
    """The stream of a topic, or of several. `options` are those of `format("smq")`.

    `staging` and `verify` are as in `read_topic`. Raises WrongOption.
    """
    names = [topic] if isinstance(topic, str) else [*topic]
    given = {"subscribe": ",".join(names)} | {name: _text(each) for name, each in options.items()}
    return TopicStream(spark, given, Path(staging) if staging is not None else None, verify=verify)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class TopicStream:
    """A stream of topics; see the head of this module."""

    def __init__(
        self, spark: SparkSession, options: dict[str, str], staging: Path | None, *, verify: bool
    ) -> None:
        self._read, _ = stream_options(options)
        self._typed_topic = typed_topic(options)
        if any(name.lower() in {"mode", "includeheaders"} for name in options):
            raise WrongOption("stream_topic decides mode and includeHeaders: rows have headers")
        self._spark, self._options = spark, options
        self._staging, self._verifies = staging, verify

    def foreach_batch(
        self,
        then: Then,
        *,
        checkpoint: Path | str,
        **trigger: Any,  # noqa: ANN401  (Spark's)
    ) -> StreamingQuery:
        """Start the stream. `trigger` is that of Spark's `trigger(…)`; batches have records."""

        def each(plan: DataFrame, batch: int) -> None:
            if ranges := planned_ranges(plan):
                then(self._rows(ranges), batch)

        plans = self._spark.readStream.format("smq").options(**self._options)
        writer = plans.option("mode", "plan").load().writeStream.foreachBatch(each)
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).start()

    def _rows(self, ranges: Iterable[Mapping[str, Any]]) -> DataFrame:
        place = find_place(self._read.location)
        with SparkTopics(place, reads_live=self._read.reads_live) as topics:
            schema = "" if self._typed_topic is None else topics.schema(self._typed_topic)
            pieces = topics.pieces(
                {
                    TopicPartition(each["topic"], each["partition"]): (each["start"], each["end"])
                    for each in ranges
                },
                {each["topic"]: each["topic_id"] for each in ranges if each["topic_id"]},
            )
        reading = PieceReading(
            self._spark,
            place,
            self._staging,
            self._verifies,
            self._read.fails_on_loss,
            schema,
        )
        return reading.frame(pieces)


def planned_ranges(plan: DataFrame) -> list[dict[str, Any]]:
    """The rows of a batch with mode=plan, as their task got them: without a job.

    These classes of Spark are internal. Where they differ, a job collects the rows.
    """
    try:
        rows = plan._jdf.queryExecution().logical().rdd()  # noqa: SLF001  (see above)
        parts = [each.inputPartition() for each in rows.partitions()]
        pickled = [each.get().pickedPartition() for each in parts if each.isDefined()]
    except (AttributeError, Py4JError, TypeError):
        return [each.asDict() for each in plan.collect()]
    found = [CPickleSerializer().loads(each) for each in pickled]  # type: ignore[no-untyped-call]
    spans = [span for each in found if isinstance(each, Ranges) for span in each.rows]
    return [dict(zip(PLAN_COLUMNS, span, strict=True)) for span in spans]
