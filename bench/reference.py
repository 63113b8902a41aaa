"""`make bench-reference`: payloads by reference beside the same bytes through Kafka's protocol.

    upload     until the payload's bytes are written, synced and named
    hand-off   from then on, until a consumer in another process has it mapped: send_handle → view
    first use  the CRC-32C of what was mapped, once
    inline     the same bytes as values, produced and consumed by librdkafka: in messages of the
               default size, and in the largest that the broker may take; the faster of both counts

One payload at a time, medians of some rounds. What is sent inline goes to a broker of its own, set
to take 50 MB. `--write` puts table and plot into docs/references.md.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

import smq
from bench.local.lines import beside
from shm.kernels.base.crc32c import crc32c
from shm.kernels.record.references import find_key
from smq.load.plot import Axis, Curve, plot
from smq.testing.smq_broker import SmqBroker, SmqCommand

KiB, MB = 1024, 1_000_000
SIZES = (KiB, 16 * KiB, 128 * KiB, MB, 10 * MB, 100 * MB)
DEFAULT_MESSAGE_BYTES = 1_000_000
LARGE_MESSAGE_BYTES = 50 * MB  # Half a ring and a WAL segment hold one.
MESSAGE_BYTES = DEFAULT_MESSAGE_BYTES, LARGE_MESSAGE_BYTES
ROUNDS_MAX, ROUNDS_MIN = 100, 5
ROUND_BYTES = 200 * MB
HANDOFFS = 200  # Of each size: they cost nothing, and the machine has other things to do.
DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "references.md"
PLOT = DOCUMENT.with_suffix(".svg")
BEGIN, END = (
    "<!-- written by bench.reference: begin -->",
    "<!-- written by bench.reference: end -->",
)


Result = TypeVar("Result")


class Row(NamedTuple):
    """What one size takes, in microseconds."""

    size: int
    upload_us: float
    handoff_us: float
    first_use_us: float
    inline_us: float

    @property
    def whole_us(self) -> float:
        """By reference, from bytes in memory to bytes that are verified."""
        return self.upload_us + self.handoff_us + self.first_use_us


def main() -> None:
    """Measure, print, and write it down if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--write", action="store_true", help="into docs/references.md")
    given = parser.parse_args()
    share = 0.1 if given.quick else 1.0
    rows, plain_us = _measure(share)
    text = table(rows) + "\n" + _words(rows, plain_us)
    print(text)
    if given.write:
        PLOT.write_text(_plotted(rows))
        page = DOCUMENT.read_text()
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def _measure(share: float) -> tuple[list[Row], float]:
    """Of each size, and a plain record. Each way has a broker with the settings that suit it."""
    data = [os.urandom(size) for size in SIZES]
    rounds = [max(ROUNDS_MIN, int(share * min(ROUNDS_MAX, ROUND_BYTES // size))) for size in SIZES]
    pairs = list(zip(data, rounds, strict=True))
    with _broker({}) as broker:
        plain_us = _plain(broker)
        times = [_by_reference(broker, *pair) for pair in pairs]
    with _broker({"message.max.bytes": str(LARGE_MESSAGE_BYTES + MB)}) as broker:
        inline_us = [
            min(median(_inline(broker, *pair, size)) for size in MESSAGE_BYTES) for pair in pairs
        ]
    return [
        Row(size, median(upload), median(handoff), median(first_use), us)
        for size, (upload, handoff, first_use), us in zip(SIZES, times, inline_us, strict=True)
    ], plain_us


@contextmanager
def _broker(settings: dict[str, str]) -> Iterator[SmqBroker]:
    with (
        tempfile.TemporaryDirectory(prefix="smq-bench-") as name,
        SmqCommand(Path(name), settings) as broker,
    ):
        yield broker


def _by_reference(
    broker: SmqBroker, data: bytes, rounds: int
) -> tuple[list[float], list[float], list[float]]:
    """Microseconds of uploads, of hand-offs of what was uploaded last, and of first uses."""
    name = f"reference-{len(data)}"
    with smq.connect(broker.bootstrap) as client:
        client.create_topic(name, 1)
        uploaded = [_timed(lambda: client.upload(name, data)) for _ in range(rounds)]
    reference = uploaded[-1][1]
    times = _handed(broker, name, lambda producer: producer.send_handle(name, reference), rounds)
    return [us for us, _ in uploaded], *times


def _plain(broker: SmqBroker) -> float:
    """Microseconds until a small record of the ordinary kind is with a consumer."""
    with smq.connect(broker.bootstrap) as client:
        client.create_topic("plain", 1)
    return median(_handed(broker, "plain", lambda it: it.send("plain", bytes(100)), 0)[0])


def _handed(
    broker: SmqBroker, topic: str, send: Callable[[smq.Producer], object], first_uses: int
) -> tuple[list[float], list[float]]:
    """Microseconds from here until a consumer in another process has what was sent."""
    started_ns = []
    with (
        beside(_take, broker.bootstrap, topic, first_uses) as pipe,
        smq.connect(broker.bootstrap) as client,
        client.producer() as producer,
    ):
        for _ in range(HANDOFFS):
            started_ns.append(time.perf_counter_ns())
            send(producer)
            pipe.recv()
        had_ns, uses = pipe.recv()
    times = [(had - started) / 1000 for had, started in zip(had_ns, started_ns, strict=True)]
    return times[HANDOFFS // 10 :], uses


def _take(pipe: Any, bootstrap: str, topic: str, first_uses: int) -> None:  # noqa: ANN401
    had_ns, uses = [], []
    with smq.connect(bootstrap) as client, client.consumer(topic, start="earliest") as consumer:
        pipe.send("ready")
        for i in range(HANDOFFS):
            payload = _next_payload(consumer)
            had_ns.append(time.perf_counter_ns())
            if payload is not None and i >= HANDOFFS - first_uses:
                uses.append(_timed(payload.view)[0])
            pipe.send("taken")
    pipe.send((had_ns, uses))


def _next_payload(consumer: smq.Consumer) -> smq.Payload | None:
    """The next record's payload, mapped; None: it is an ordinary record."""
    while True:
        with consumer.poll(timeout_s=1) as batch:
            for record in batch:
                if record.payload is not None:
                    record.payload.view(verify=False)
                return record.payload


def _inline(broker: SmqBroker, data: bytes, rounds: int, message_bytes: int) -> list[float]:
    """Microseconds until all has been produced and consumed."""
    name = f"inline-{len(data)}-{message_bytes}"
    with smq.connect(broker.bootstrap) as client:
        client.create_topic(name, 1)
    messages = [data[at : at + message_bytes] for at in range(0, len(data), message_bytes)]
    limits = {"bootstrap.servers": broker.bootstrap, "message.max.bytes": 10**9}
    producer = Producer(limits | {"linger.ms": 0, "queue.buffering.max.kbytes": 2**20})
    fetches = {"fetch.max.bytes": 10**9, "max.partition.fetch.bytes": 10**8}
    waits = {"fetch.wait.max.ms": 10, "fetch.error.backoff.ms": 1}
    consumer = Consumer(
        limits | fetches | waits | {"group.id": "nobody", "receive.message.max.bytes": 2 * 10**9}
    )
    consumer.assign([TopicPartition(name, 0, 0)])

    def once() -> None:
        for message in messages:
            producer.produce(name, message, partition=0)
        producer.poll(0)
        left = len(data)
        while left:
            found = consumer.poll(1)
            if found is not None:
                left -= len(found)
        producer.flush()

    times = [_timed(once)[0] for _ in range(rounds + 1)]
    consumer.close()
    return times[1:]


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    start = time.perf_counter_ns()
    result = work()
    return (time.perf_counter_ns() - start) / 1000, result


def table(rows: list[Row]) -> str:
    """As Markdown."""
    lines = [
        "| payload | upload | hand-off | first use (CRC) | in all | inline | inline / hand-off |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        times = (row.upload_us, row.handoff_us, row.first_use_us, row.whole_us, row.inline_us)
        cells = [_size(row.size), *map(_time, times), f"{row.inline_us / row.handoff_us:,.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _words(rows: list[Row], plain_us: float) -> str:
    handoffs = [row.handoff_us for row in rows]
    faster = [_size(row.size) for row in rows if row.whole_us < row.inline_us]
    where = f"at {', '.join(faster) or 'no size'}"
    return (
        f"The slowest hand-off takes {max(handoffs) / min(handoffs):.2f} times the fastest (to "
        f"reach: ≤ 1.5); a plain record of 100 bytes takes {_time(plain_us)} the same way. At "
        f"{_size(rows[-1].size)} inline takes {rows[-1].inline_us / rows[-1].handoff_us:,.0f} "
        f"times the hand-off (≥ 20). By reference is faster in all {where}, of these sizes. The "
        f"search for handles takes {_search_ratio():.2f} of what the CRC-32C of the same batch "
        "takes.\n"
    )


def _search_ratio() -> float:
    """How long the search for handles in a megabyte takes beside its CRC-32C."""
    data = np.frombuffer(os.urandom(MB), np.uint8)
    searches, checks = [], []
    for _ in range(200):
        searches.append(_timed(lambda: find_key(data, 0, len(data)))[0])
        checks.append(_timed(lambda: crc32c(data, 0, len(data)))[0])
    return median(searches) / median(checks)


def _plotted(rows: list[Row]) -> str:
    sizes = [row.size for row in rows]
    return plot(
        "Microseconds by payload size",
        [
            Curve("inline, through Kafka's protocol", sizes, [row.inline_us for row in rows]),
            Curve("by reference, in all", sizes, [row.whole_us for row in rows]),
            Curve("by reference, hand-off", sizes, [row.handoff_us for row in rows]),
        ],
        Axis(_size, logarithmic=True),
        Axis(_time, logarithmic=True),
        sizes,
    )


def _size(size: float) -> str:
    return f"{size / MB:,.0f} MB" if size >= MB else f"{size / KiB:,.0f} KiB"


def _time(us: float) -> str:
    return f"{us / 1000:,.1f} ms" if us >= 1000 else f"{us:,.0f} µs"


if __name__ == "__main__":
    main()
