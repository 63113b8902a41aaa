"""`smq copy`: copies a topic to another topic of any Kafka broker, SMQ or Apache Kafka."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smq.app.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    cluster_at,
    refusal,
    topic_argument,
)
from smq.app.cli.output import say
from smq.app.cli.places import PLACES, place
from smq.app.cli.progress import progress
from smq.app.process.clock import monotonic_ms
from smq.model.errors import BrokerError, StoreError

if TYPE_CHECKING:
    from smq.app.cli.records.copy_payloads import PayloadCopy
    from smq.app.cli.records.copying import Copy, Lane, Side
    from smq.client.kafka.offsets import Place

JSON = (
    'JSON: {"source", "destination", "partitions", "records", "bytes", "payloads", '
    '"payload_bytes", "seconds"}'
)
SAVE_MS = 1000  # Between two saves: how much of a copy is repeated after a kill.

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
    from smq.app.cli.records import copying  # noqa: PLC0415  (NumPy)
    from smq.app.cli.records.copy_payloads import PayloadCopy  # noqa: PLC0415  (as above)

    where = place(start, "--from")
    with cluster_at(bootstrap) as cluster, cluster_at(to or bootstrap) as other:
        sides = copying.Side(cluster, source), copying.Side(other, destination)
        lanes = _lanes(*sides, where, state)
        saving = Saving(state, *sides, lanes)
        began_ms = monotonic_ms()
        total = sum(lane.end - lane.position for lane in lanes.values())
        with progress(f"{source} → {destination}", total) as advance:
            payloads = PayloadCopy(*sides)
            work = copying.Copy(
                *(*sides, lanes, advance, saving.save),
                bring=payloads.bring,
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
        return side.cluster.retrying(lambda: message_bytes_max(*side))
    except BrokerError:  # Its configs may be closed to a client that may write to it.
        return None


def _run(work: "Copy", saving: "Saving") -> None:
    """Copy and save progress. Refuses if the destination differs from the saved state."""
    from smq.app.cli.records import copying  # noqa: PLC0415  (NumPy)

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


def _say_done(work: "Copy", payloads: "PayloadCopy", seconds: float) -> None:
    rate = work.bytes / max(seconds, 0.001) / 1e6
    plural = "" if payloads.count == 1 else "s"
    also = f", and {payloads.count:,} payload{plural} of {payloads.bytes:,} bytes"
    brought = also if payloads.count else ""
    say(f"copied {work.records:,} records, {work.bytes:,} bytes, {rate:,.0f} MB/s{brought}")


def _counts(work: "Copy", payloads: "PayloadCopy") -> dict[str, int]:
    records = {"records": work.records, "bytes": work.bytes}
    return records | {"payloads": payloads.count, "payload_bytes": payloads.bytes}


class Saving:
    """Saves the state periodically, if there is a file for it."""

    def __init__(
        self, path: Path | None, source: "Side", destination: "Side", lanes: "dict[int, Lane]"
    ) -> None:
        self._path, self._lanes = path, lanes
        self._names = name_of(source), name_of(destination)
        self._saved_ms = monotonic_ms()
        self.save_now()  # With the destination's first offsets, before anything is copied.

    def save(self) -> None:
        """Save if it is time to."""
        if monotonic_ms() - self._saved_ms >= SAVE_MS:
            self.save_now()

    def save_now(self) -> None:
        """Save the acknowledged progress."""
        from smq.app.cli.records.copy_state import write_state  # noqa: PLC0415

        self._saved_ms = monotonic_ms()
        if self._path is not None:
            pairs = {
                number: (lane.acknowledged, lane.destination - lane.skip)
                for number, lane in self._lanes.items()
            }
            write_state(self._path, *self._names, pairs)


def name_of(side: "Side") -> str:
    """The identity of a cluster's topic in the state file."""
    return f"{side.cluster.cluster_id}/{side.topic}"


def _lanes(
    source: "Side", destination: "Side", where: "Place", state: Path | None
) -> "dict[int, Lane]":
    """A lane for each partition, from the state where there is one. May create the destination."""
    from smq.app.cli.records.copy_state import read_state  # noqa: PLC0415
    from smq.app.cli.records.copying import Lane  # noqa: PLC0415  (as above)
    from smq.client.kafka.offsets import (  # noqa: PLC0415  (as above)
        LATEST,
        LATEST_TIMESTAMP,
        READ_COMMITTED,
        find_offsets,
        resolve,
    )

    count = _partition_count(source, destination)
    partitions = list(range(count))
    if name_of(source) == name_of(destination):
        raise refusal("source and destination are the same topic")
    ends = find_offsets(*source, partitions, LATEST_TIMESTAMP, isolation_level=READ_COMMITTED)
    firsts = resolve(*source, partitions, where)
    there = resolve(*destination, partitions, LATEST)
    known = {} if state is None else read_state(state, name_of(source), name_of(destination))
    lanes = {}
    for number in partitions:
        begun, then = known.get(number, (firsts[number], there[number]))
        if there[number] < then:
            raise refusal(
                f"partition {number} of {destination.topic} ends at {there[number]}, but "
                f"{then} was reached before: it has lost records, or was created again"
            )
        lanes[number] = Lane(
            partition=number,
            position=begun,
            end=ends[number],
            destination=there[number],
            acknowledged=begun,
            skip=there[number] - then,
        )
    return lanes


def _partition_count(source: "Side", destination: "Side") -> int:
    from smq.client.errors import NoSuchTopic  # noqa: PLC0415  (as above)
    from smq.client.kafka.admin import create_topic  # noqa: PLC0415  (as above)

    count = _count(source)
    try:
        there = _count(destination)
    except NoSuchTopic:
        there = create_topic(*destination, count)
    if there < count:
        raise refusal(
            f"topic {destination.topic} has {there} partitions and {source.topic} has {count}; "
            "add partitions to it, or name another"
        )
    return count


def _count(side: "Side") -> int:
    return len(side.cluster.retrying(lambda: side.cluster.topic(side.topic)).leaders)
