"""`make bench-local`: programs on one host, through SMQ's shared memory and through its peers.

Everything is measured in one run, on the cores that the programs and the broker share. One call a
message, batches of Arrow rows, one-way latency, and a publisher with many readers. `--write` puts
the table into docs/performance.md.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from uuid import uuid4

from bench.local.peers import (
    Peer,
    confluent_peer,
    faster_fifo_peer,
    iceoryx2_peer,
    queue_peer,
    smq_peer,
    zmq_peer,
)
from bench.local.spinning import SPIN_US, appended_ns
from bench.machine import touch_free_memory
from bench.report import number, write_between
from smq.testing.smq_broker import SmqBroker

MESSAGE, LATENCY_BYTES = b"x" * 100, 64
BATCH_ROWS = 10_000
READERS = 8
PUBLISHER_RATE = 1_000_000
GAP_S = 0.0005
HOPS = 6000
SETTLE_S = 2  # After a topic is deleted: until its segments are free.
WARM_UPS, ROUNDS = 3, 3  # Until the WAL uses its files again; of the others the median counts.
PUBLISHING = f"a publisher of 1,000,000 rows/s beside {READERS} readers, of its rate without"
WAKE_UPS = 20_000
SEALED_LATER = {"smq.seal.ms": "3600000", "smq.seal.bytes": str(1 << 40)}
PEERS = ("SMQ", "confluent-kafka", "iceoryx2", "pyzmq ipc", "faster-fifo", "multiprocessing.Queue")
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
BEGIN, END = "<!-- written by bench.local: begin -->", "<!-- written by bench.local: end -->"
Figures = dict[str, float]
_FORK: Any = multiprocessing.get_context("fork")


@contextmanager
def beside(work: Callable[..., object], *arguments: object) -> Iterator[Any]:
    """Another process that runs `work(pipe, …)`; gives our end of the pipe once it is ready."""
    ours, theirs = _FORK.Pipe()
    process = _FORK.Process(target=work, args=(theirs, *arguments))
    process.start()
    theirs.close()
    ours.recv()
    try:
        yield ours
    finally:
        process.join()


def _count(pipe: Any, peer: Peer, count: int) -> None:  # noqa: ANN401
    receive = peer.receiver(lambda message: message)
    pipe.send("ready")
    left = count - receive()
    started = time.perf_counter()
    while left > 0:
        left -= receive()
    pipe.send((time.perf_counter(), time.perf_counter() - started))


def throughput(peer: Peer, count: int) -> Figures:
    """Messages of 100 B, one call each: sent by one process, received by another."""
    with beside(_count, peer, count) as pipe:
        send, close = peer.sender()
        started = time.perf_counter()
        for _ in range(count):
            send(MESSAGE)
        sent_s = time.perf_counter() - started
        close()
        ended, _ = pipe.recv()
    return {"sent_s": count / sent_s, "msg_s": count / (ended - started)}


def _stamped() -> bytes:
    """A message of 64 B that says when it was made."""
    return time.perf_counter_ns().to_bytes(8, "little") + bytes(LATENCY_BYTES - 8)


def _age_ns(message: Any) -> int:  # noqa: ANN401
    return time.perf_counter_ns() - int.from_bytes(message[:8], "little")


def _listen(pipe: Any, peer: Peer, count: int) -> None:  # noqa: ANN401
    taken: list[int] = []
    receive = peer.receiver(lambda message: taken.append(_age_ns(message)))
    pipe.send("ready")
    while len(taken) < count:
        receive()
    pipe.send(taken)


def latency(peer: Peer, count: int) -> Figures:
    """From the call that sends 64 B to the receiver's hands, in us; a message each half ms."""
    with beside(_listen, peer, count) as pipe:
        send, close = peer.sender()
        for _ in range(count):
            send(_stamped())
            time.sleep(GAP_S)
        taken = pipe.recv()
        close()
    return _percentiles(taken[count // 10 :])


def _return(pipe: Any, there: Peer, back: Peer, count: int) -> None:  # noqa: ANN401
    taken: list[int] = []
    receive = there.receiver(lambda message: taken.append(_age_ns(message)))
    send, close = back.sender()
    pipe.send("ready")
    for i in range(count):
        while len(taken) == i:
            receive()
        send(_stamped())
    pipe.send(taken)
    pipe.recv()
    close()


def ping_pong(there: Peer, back: Peer, count: int) -> Figures:
    """As latency(); a message goes out as soon as the one before has come back."""
    returned: list[int] = []
    with beside(_return, there, back, count) as pipe:
        send, close = there.sender()
        receive = back.receiver(lambda message: returned.append(_age_ns(message)))
        for i in range(count):
            send(_stamped())
            while len(returned) == i:
                receive()
        taken = pipe.recv()
        pipe.send("all have come back")
        close()
    return _percentiles(taken[count // 10 :])


def _percentiles(taken_ns: list[int]) -> Figures:
    ordered = sorted(taken_ns)
    return {"p50_us": median(ordered) / 1e3, "p99_us": ordered[len(ordered) * 99 // 100] / 1e3}


def woken() -> Figures:
    """What waking a process that sleeps costs, in us: a byte in a pipe, on one core, and across.

    How long a byte takes to a process and back, halved.
    """
    first, *others = sorted(os.sched_getaffinity(0))
    figures = {"same_us": _woken_us(first, first)}
    return figures | {"across_us": _woken_us(first, others[0])} if others else figures


def _woken_us(core: int, other: int) -> float:
    (there, to_there), (back, to_back) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.sched_setaffinity(0, {other})
        for _ in range(WAKE_UPS):
            os.write(to_back, os.read(there, 1))
        os._exit(0)
    taken = []
    with on_cores({core}):
        for _ in range(WAKE_UPS):
            started = time.perf_counter_ns()
            os.write(to_there, b"x")
            os.read(back, 1)
            taken.append(time.perf_counter_ns() - started)
    os.waitpid(child, 0)
    for fd in (there, to_there, back, to_back):
        os.close(fd)
    return median(taken) / 2e3


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """This process, and those it starts meanwhile, on these cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def spinning(directory: Path, count: int) -> Figures:
    """From a producer to the log of a shard that spins, 64 B, in us; a message each half ms."""
    settings = {"session.spin.us": str(SPIN_US)}
    with SmqBroker(directory, settings) as broker, a_topic(broker.bootstrap) as topic:
        value, pause = bytes(LATENCY_BYTES), lambda: time.sleep(GAP_S)
        return _percentiles(appended_ns(broker.bootstrap, topic, value, count, pause))


def _read_tables(pipe: Any, bootstrap: str, topic: str, count: int) -> None:  # noqa: ANN401
    import smq  # noqa: PLC0415

    consumer = smq.connect(bootstrap).consumer(topic, start="earliest")
    pipe.send("ready")
    left = count
    while left > 0:
        with consumer.poll(timeout_s=60) as batch:
            left -= batch.to_arrow().num_rows
    pipe.send(time.perf_counter())


def tables(bootstrap: str, topic: str, rows: int) -> Figures:
    """100 B rows as Arrow batches of 10,000: produce, log (offsets, CRC), consume as Arrow."""
    import pyarrow as pa  # noqa: PLC0415

    import smq  # noqa: PLC0415

    batch = pa.table({"value": [MESSAGE] * BATCH_ROWS})
    with beside(_read_tables, bootstrap, topic, rows) as pipe, smq.connect(bootstrap) as client:
        with client.producer() as producer:
            started = time.perf_counter()
            for _ in range(rows // BATCH_ROWS):
                producer.send_batch(topic, batch)
            producer.flush()
        ended = pipe.recv()
    return {"msg_s": rows / (ended - started)}


def publishing(bootstrap: str, topic: str, seconds: float, readers: int) -> float:
    """How long a publisher of a million rows a second takes for its work, beside `readers`."""
    import pyarrow as pa  # noqa: PLC0415

    import smq  # noqa: PLC0415

    stop = _FORK.Event()
    processes = [
        _FORK.Process(target=_follow, args=(bootstrap, topic, stop)) for _ in range(readers)
    ]
    for process in processes:
        process.start()
    batch = pa.table({"value": [MESSAGE] * BATCH_ROWS})
    taken = []
    with smq.connect(bootstrap) as client, client.producer() as producer:
        due = time.perf_counter()
        for _ in range(int(seconds * PUBLISHER_RATE / BATCH_ROWS)):
            due += BATCH_ROWS / PUBLISHER_RATE
            started = time.perf_counter()
            producer.send_batch(topic, batch)
            producer.flush()
            taken.append(time.perf_counter() - started)
            time.sleep(max(0.0, due - time.perf_counter()))
        rate = len(taken) * BATCH_ROWS / (time.perf_counter() - due + seconds)
    stop.set()
    for process in processes:
        process.join()
    return rate


def _follow(bootstrap: str, topic: str, stop: Any) -> None:  # noqa: ANN401
    """A reader at its own pace: it looks at the newest 20 times a second."""
    import smq  # noqa: PLC0415

    consumer = smq.connect(bootstrap).consumer(topic, start="latest")
    while not stop.is_set():
        with consumer.poll(timeout_s=0.05) as batch:
            len(batch)
        stop.wait(0.05)


class Line(NamedTuple):
    """One line of the table: a figure of each peer that has it, and SMQ's bound."""

    words: str
    figures: Figures
    target: str


def _line(words: str, taken: dict[str, Figures], figure: str, target: str) -> Line:
    found = {name: figures[figure] for name, figures in taken.items() if figure in figures}
    return Line(words, found, target)


@contextmanager
def a_topic(bootstrap: str, **configs: str) -> Iterator[str]:
    """A topic of one partition, deleted afterwards: the WAL's files are used again, their pages
    warm, as in a broker that has run for a while."""
    import smq  # noqa: PLC0415

    name = f"bench-{uuid4().hex[:8]}"
    with smq.connect(bootstrap) as client:
        client.create_topic(name, partitions=1, configs=configs)
    yield name
    with smq.connect(bootstrap) as client:
        client.delete_topic(name)
    time.sleep(SETTLE_S)


def measure(bootstrap: str, directory: Path, scale: float) -> list[Line]:
    """All lines of the table."""

    def n(full: float) -> int:
        return max(BATCH_ROWS, int(full * scale))

    def on_broker(make: Callable[[str, str], Peer], count: int) -> Figures:
        with a_topic(bootstrap) as topic:
            return throughput(make(bootstrap, topic), count)

    rounds = []
    for _ in range(WARM_UPS + ROUNDS):
        with a_topic(bootstrap, **SEALED_LATER) as topic:
            rounds.append(tables(bootstrap, topic, n(15_000_000))["msg_s"])
    arrow = {"SMQ": {"msg_s": median(rounds[WARM_UPS:])}}
    with a_topic(bootstrap) as topic:
        sealed = {"SMQ": tables(bootstrap, topic, n(60_000_000))}
    calls = {
        "SMQ": on_broker(smq_peer, n(3_000_000)),
        "confluent-kafka": on_broker(confluent_peer, n(500_000)),
        "iceoryx2": throughput(iceoryx2_peer(len(MESSAGE)), n(500_000)),
        "pyzmq ipc": throughput(zmq_peer(directory), n(1_000_000)),
        "faster-fifo": throughput(faster_fifo_peer(), n(500_000)),
        "multiprocessing.Queue": throughput(queue_peer(), n(200_000)),
    }
    arrow["confluent-kafka"] = calls["confluent-kafka"]
    with a_topic(bootstrap) as topic:
        alone = publishing(bootstrap, topic, 5 * scale, 0)
    with a_topic(bootstrap) as topic:
        crowded = publishing(bootstrap, topic, 5 * scale, READERS)
    return [
        _line(
            "Arrow batches of 10,000 rows through the log: msg/s", arrow, "msg_s", "≥ 10,000,000"
        ),
        _line("— four times as many, sealed meanwhile: msg/s", sealed, "msg_s", ""),
        _line("one call a message, sent: msg/s", calls, "sent_s", "≥ 1,000,000"),
        _line("one call a message, received: msg/s", calls, "msg_s", "≥ 1,000,000"),
        *one_ways(bootstrap, directory),
        Line(PUBLISHING, {"SMQ": crowded / alone}, "≥ 0.98"),
    ]


def one_ways(bootstrap: str, directory: Path) -> list[Line]:
    """The lines of how long a message of 64 B takes."""
    returned = back_and_forth(bootstrap, directory)
    there, back = iceoryx2_peer(LATENCY_BYTES), iceoryx2_peer(LATENCY_BYTES)
    returned["iceoryx2"] = ping_pong(there, back, HOPS)
    with on_cores({min(os.sched_getaffinity(0))}), SmqBroker(directory / "core") as broker:
        on_one_core = back_and_forth(broker.bootstrap, directory)
    with a_topic(bootstrap) as topic:
        hops = {"SMQ": latency(smq_peer(bootstrap, topic), HOPS)}
    hops |= {name: latency(make(), HOPS) for name, make in sleepers(directory).items()}
    hops["iceoryx2"] = latency(iceoryx2_peer(LATENCY_BYTES), HOPS)
    wake_ups = {"SMQ": woken()}
    beside_pyzmq = returned["SMQ"]["p50_us"] / returned["pyzmq ipc"]["p50_us"]
    spun = {
        "SMQ": spinning(directory / "spinning", HOPS),
        "iceoryx2": hops["iceoryx2"],
        "pyzmq ipc": latency(zmq_peer(directory, spins=True), HOPS),
        "faster-fifo": latency(faster_fifo_peer(spins=True), HOPS),
        "multiprocessing.Queue": latency(queue_peer(spins=True), HOPS),
    }
    return [
        _line("one way, 64 B, back and forth: p50 µs", returned, "p50_us", "≤ 30"),
        Line("— of what pyzmq takes", {"SMQ": beside_pyzmq}, "≤ 1.38"),
        _line("one way, 64 B, back and forth: p99 µs", returned, "p99_us", ""),
        _line("— a bare wake-up, from one core to another: p50 µs", wake_ups, "across_us", ""),
        _line("— all on one core: p50 µs", on_one_core, "p50_us", ""),
        _line("— a bare wake-up on that core: p50 µs", wake_ups, "same_us", ""),
        _line("one way, 64 B, one each half ms: p50 µs", hops, "p50_us", ""),
        _line("one way, 64 B, one each half ms: p99 µs", hops, "p99_us", ""),
        _line("64 B to a receiver that spins (SMQ: into the log): p50 µs", spun, "p50_us", "≤ 5"),
        _line("64 B to a receiver that spins (SMQ: into the log): p99 µs", spun, "p99_us", ""),
    ]


def sleepers(directory: Path) -> dict[str, Callable[[], Peer]]:
    """The peers whose receivers sleep."""
    return {
        "pyzmq ipc": lambda: zmq_peer(directory),
        "faster-fifo": faster_fifo_peer,
        "multiprocessing.Queue": queue_peer,
    }


def back_and_forth(bootstrap: str, directory: Path) -> dict[str, Figures]:
    """One way of all whose receivers sleep."""
    with a_topic(bootstrap) as topic, a_topic(bootstrap) as other:
        there, back = smq_peer(bootstrap, topic), smq_peer(bootstrap, other)
        returned = {"SMQ": ping_pong(there, back, HOPS)}
    peers = sleepers(directory)
    return returned | {name: ping_pong(make(), make(), HOPS) for name, make in peers.items()}


def table(lines: list[Line]) -> str:
    """As Markdown."""
    head = ["| measure | " + " | ".join(PEERS) + " | target |", "|---" * (len(PEERS) + 2) + "|"]
    body = [
        f"| {line.words} | "
        + " | ".join(number(line.figures.get(peer)) for peer in PEERS)
        + f" | {line.target} |"
        for line in lines
    ]
    return "\n".join(head + body)


def main() -> None:
    """Measure, print the table, and write it down if asked to."""
    parser = argparse.ArgumentParser(prog="python -m bench.local", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    touch_free_memory()
    with tempfile.TemporaryDirectory(prefix="smq-bench-") as name:
        directory = Path(name)
        with SmqBroker(directory / "smq") as broker:
            lines = measure(broker.bootstrap, directory, 0.1 if options.quick else 1.0)
    print(table(lines))
    if options.write:
        command = f'make bench-local ARGS="{" ".join(sys.argv[1:])}"'
        text = f"{table(lines)}\n\nPrinted by `{command}`."
        write_between(DOCUMENT, BEGIN, END, text)
