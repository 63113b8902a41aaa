"""`smq copy`: copies a topic to another topic of any Kafka broker, SMQ or Apache Kafka."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from smq.app.process.clock import monotonic_ms
from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    cluster_at,
    refusal,
    topic_argument,
)
from smq.cli.output import say
from smq.cli.places import PLACES, place
from smq.cli.progress import progress
from smq.model.errors import BrokerError, StoreError

if TYPE_CHECKING:
    from smq.cli.records.copy_payloads import PayloadCopy
    from smq.cli.records.copy_state import ClusterTopic, State
    from smq.cli.records.copying import CopyRun, PartitionCopy, Side
    from smq.cli.records.raw_batches import ProducerIdentity
    from smq.client.kafka.offsets import OffsetPlace

JSON = (
    'JSON: {"source", "destination", "partitions", "records", "bytes", "payloads", '
    '"payload_bytes", "seconds"}'
)

InflateMax = Annotated[
    int | None,
    typer.Option(
        "--inflate-max",
        metavar="BYTES",
        min=1,
        help="How far a batch that must be encoded anew may inflate; default: 256 MiB.",
    ),
]


def copy(  # noqa: PLR0913  (Each is an option.)
    source: Annotated[str, topic_argument("SOURCE", "The topic to copy.")],
    destination: Annotated[str, topic_argument("DESTINATION", "The topic to write to.")],
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="HOST:PORT", help="Brokers of the destination; default: --bootstrap."
        ),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help=f"Where to start: {PLACES}.", metavar="PLACE")
    ] = "earliest",
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", help="A file that makes the copy resumable: run the same command again."
        ),
    ] = None,
    keep_offsets: Annotated[
        bool,
        typer.Option("--keep-offsets", help="Stop before a record whose offset cannot be kept."),
    ] = False,
    inflate_max: InflateMax = None,
    as_json: AsJson = False,
) -> None:
    """Copy the records of a topic, partition by partition, up to its present end.

    Keys, values, headers, timestamps and compression stay as they are; aborted transactions are
    left out. Batches above the destination's max.message.bytes are divided. Payloads that records
    refer to are copied too, under the same ids. The destination is created with as many partitions
    if it does not exist. Nobody else may write to it meanwhile.
    """
    from smq.cli.records import copying  # noqa: PLC0415  (NumPy)
    from smq.cli.records.copy_payloads import PayloadCopy  # noqa: PLC0415  (as above)

    where = place(start, "--from")
    with cluster_at(bootstrap) as cluster, cluster_at(to or bootstrap) as other:
        sides = copying.Side(cluster, source), copying.Side(other, destination)
        lanes, saving = _begun(*sides, where, state)
        began_ms, total = monotonic_ms(), sum(each.end - each.position for each in lanes.values())
        with progress(f"{source} → {destination}", total) as advance:
            payloads = PayloadCopy(*sides)
            work = copying.CopyRun(
                *(*sides, lanes, advance, saving.save),
                bring=payloads.bring,
                source_id=UUID(saving.source.topic_id),
                producer=saving.producer,
                batch_bytes_max=_bytes_max(sides[1]),
                keep_offsets=keep_offsets,
                inflated_bytes_max=inflate_max,
            )
            _run(work, saving)
        seconds = (monotonic_ms() - began_ms) / 1000
    if as_json:
        facts = {"source": source, "destination": destination, "partitions": len(lanes)}
        say(json.dumps({**facts, **_counts(work, payloads), "seconds": seconds}))
        return
    _say_done(work, payloads, seconds)


def _bytes_max(side: "Side") -> int | None:
    """The largest batch that a topic takes; None if its broker does not tell."""
    from smq.client.kafka.admin import message_bytes_max  # noqa: PLC0415  (as above)

    try:
        with side.told():
            return side.cluster.retrying(lambda: message_bytes_max(*side))
    except BrokerError:  # Its configs may be closed to a client that may write to it.
        return None


def _run(work: "CopyRun", saving: "Saving") -> None:
    """Copy and save progress. Refuses if the destination differs from the saved state."""
    from smq.cli.records import copying  # noqa: PLC0415  (NumPy)

    try:
        work.run()
    except (copying.Interloper, copying.OffsetsNotKept) as error:
        raise refusal(str(error)) from error
    except StoreError as error:
        saving.save_now()
        raise refusal(f"a payload cannot be copied: {error}") from error
    except BaseException:
        saving.save_now()
        raise
    saving.save_now()


def _say_done(work: "CopyRun", payloads: "PayloadCopy", seconds: float) -> None:
    rate = work.bytes / max(seconds, 0.001) / 1e6
    plural = "" if payloads.count == 1 else "s"
    also = f", and {payloads.count:,} payload{plural} of {payloads.bytes:,} bytes"
    brought = also if payloads.count else ""
    say(f"copied {work.records:,} records, {work.bytes:,} bytes, {rate:,.0f} MB/s{brought}")


def _counts(work: "CopyRun", payloads: "PayloadCopy") -> dict[str, int]:
    records = {"records": work.records, "bytes": work.bytes}
    return records | {"payloads": payloads.count, "payload_bytes": payloads.bytes}


class Saving:
    """Saves the state, if there is a file for it. `producer` is that of the copy, once known."""

    def __init__(
        self,
        path: Path | None,
        source: "ClusterTopic",
        destination: "ClusterTopic",
        lanes: "dict[int, PartitionCopy]",
        producer: "ProducerIdentity | None",
    ) -> None:
        self._path, self._lanes, self.producer = path, lanes, producer
        self.source, self._destination = source, destination
        self.save_now()  # With the destination's first offsets, before anything is copied.

    def save(self, producer: "ProducerIdentity | None") -> None:
        """Save what is acknowledged and what is under way, of this producer."""
        self.producer = producer
        self.save_now()

    def save_now(self) -> None:
        """Save it again."""
        from smq.cli.records.copy_state import CopiedPartition, State, write_state  # noqa: PLC0415

        if self._path is not None:
            partitions = {
                number: CopiedPartition(
                    lane.acknowledged,
                    lane.destination - lane.skip,
                    lane.began,
                    [pair for pair in lane.under_way.items() if pair[0] > lane.destination],
                    lane.epoch,
                )
                for number, lane in self._lanes.items()
            }
            state = State(partitions, self.producer)
            write_state(self._path, self.source, self._destination, state)


def name_of(side: "Side") -> "ClusterTopic":
    """The identity of a cluster's topic."""
    from smq.cli.records.copy_state import ClusterTopic  # noqa: PLC0415

    cluster, topic = side
    with side.told():
        found = cluster.retrying(lambda: cluster.topic(topic))
    return ClusterTopic(str(cluster.cluster_id), topic, str(found.topic_id))


def _begun(
    source: "Side", destination: "Side", where: "OffsetPlace", path: Path | None
) -> "tuple[dict[int, PartitionCopy], Saving]":
    """What is to be copied, and the state, of which `path` may know an earlier run."""
    from smq.cli.records.copy_state import State, read_state  # noqa: PLC0415

    names = name_of(source), destination_of(source, destination)
    known = State() if path is None else read_state(path, *names)
    lanes = _lanes(source, destination, where, known)
    return lanes, Saving(path, *names, lanes, known.producer)


def _lanes(
    source: "Side", destination: "Side", where: "OffsetPlace", state: "State"
) -> "dict[int, PartitionCopy]":
    """A lane for each partition, from the state where there is one."""
    from smq.cli.records.copy_state import CopiedPartition  # noqa: PLC0415
    from smq.cli.records.copying import PartitionCopy  # noqa: PLC0415  (as above)
    from smq.client.kafka.offsets import (  # noqa: PLC0415  (as above)
        LATEST,
        LATEST_TIMESTAMP,
        READ_COMMITTED,
        find_offsets,
        resolve,
    )

    partitions = list(range(_count(source)))
    with source.told():
        ends = find_offsets(*source, partitions, LATEST_TIMESTAMP, isolation_level=READ_COMMITTED)
        firsts = resolve(*source, partitions, where)
    with destination.told():
        there = resolve(*destination, partitions, LATEST)
    lanes = {}
    for number in partitions:
        end = there[number]
        known = state.partitions.get(number) or CopiedPartition(firsts[number], end, end)
        if end < known.destination:
            raise refusal(
                f"partition {number} of {destination.topic} ends at {end}, but "
                f"{known.destination} was reached before: it has lost records"
            )
        position, skip = known.place(end)
        if known.epoch >= 0 and ends[number] < position:  # It has been read up to there.
            raise refusal(
                f"partition {number} of {source.topic} ends at {ends[number]}, but was copied up "
                f"to {position}: it has lost records; copy it to another destination"
            )
        lanes[number] = PartitionCopy(
            partition=number,
            position=position,
            end=ends[number],
            destination=end,
            acknowledged=position,
            skip=skip,
            began=known.began,
            under_way=dict(known.under_way),
            epoch=known.epoch,
        )
    return lanes


def destination_of(source: "Side", destination: "Side") -> "ClusterTopic":
    """The identity of the destination, which is created if it does not exist."""
    from smq.client.errors import NoSuchTopic  # noqa: PLC0415  (as above)
    from smq.client.kafka.admin import create_topic  # noqa: PLC0415  (as above)

    count = _count(source)
    try:
        there = _count(destination)
    except NoSuchTopic:
        with destination.told():
            there = create_topic(*destination, count)
    if there < count:
        raise refusal(
            f"topic {destination.topic} has {there} partitions and {source.topic} has {count}; "
            "add partitions to it, or name another"
        )
    found = name_of(destination)
    if name_of(source) == found:
        raise refusal("source and destination are the same topic")
    return found


def _count(side: "Side") -> int:
    with side.told():
        return len(side.cluster.retrying(lambda: side.cluster.topic(side.topic)).leaders)
