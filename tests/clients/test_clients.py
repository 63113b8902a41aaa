"""Unmodified clients of many languages; `programs/contract.py` describes their work."""

import json
import subprocess
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from smq.testing.processes import Broker
from tests.clients import toolchain
from tests.clients.brokers import running
from tests.clients.programs.contract import HALFWAY, Task

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

PARTITIONS = 2
RECORDS = 100
RECORDS_BESIDE_A_KILL = 2000
RECORDS_OF_KCAT = 10  # It is started for each.
PROGRAM_SECONDS_MAX = 90
READ_SECONDS_MAX = 20
SHARD = "shard-1"

Command = Callable[[], list[str]]
RESUMING: dict[str, Command] = {
    "confluent-kafka": lambda: toolchain.python("confluent_kafka_client"),
    "kafka-python": lambda: toolchain.python("kafka_python_client"),
    "aiokafka": lambda: toolchain.python("aiokafka_client"),
    "kcat": toolchain.kcat,
    "franz-go": lambda: toolchain.go("franz"),
    "sarama": lambda: toolchain.go("sarama"),
    "kafka-go": lambda: toolchain.go("kafkago"),
    "java": toolchain.java,
    "kafkajs": toolchain.node,
}
SURVIVING = ["confluent-kafka", "java", "franz-go"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("broker")) as started:
        yield started


def task_for(broker: Broker, count: int) -> Task:
    """A topic and a group of its own."""
    name = f"clients-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        created.result()
    return Task(broker.bootstrap, name, f"group-of-{name}", count)


def arguments(mode: str, task: Task) -> list[str]:
    return [mode, *map(str, task)]


def values(count: int) -> list[str]:
    return [f"v{number}" for number in range(count)]


def by_number(found: list[str]) -> list[str]:
    return sorted(found, key=lambda value: int(value[1:]))


@pytest.mark.parametrize("client", RESUMING)
def test_a_client_resumes_where_its_group_has_committed(broker: Broker, client: str) -> None:
    command = RESUMING[client]()
    task = task_for(broker, RECORDS_OF_KCAT if client == "kcat" else RECORDS)
    done = subprocess.run(
        [*command, *arguments("resume", task)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PROGRAM_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == 0
    assert len(found["first"]) == task.half
    assert by_number(found["first"] + found["second"]) == values(task.records)


@pytest.mark.parametrize("client", SURVIVING)
def test_a_client_goes_on_after_its_broker_was_killed(
    broker: Broker, client: str, tmp_path: Path
) -> None:
    command = RESUMING[client]()
    task = task_for(broker, RECORDS_BESIDE_A_KILL)
    found = run_through_a_kill(broker, command + arguments("through-a-kill", task), tmp_path)
    assert found["wrong"] == 0
    assert by_number(list(set(found["values"]))) == values(task.records)
    assert_log_holds_each_value_once_in_order(task)


def run_through_a_kill(broker: Broker, command: list[str], tmp_path: Path) -> dict[str, Any]:
    """What the client reports that saw its broker die when it was half through."""
    errors = tmp_path / "errors"
    with (
        errors.open("wb") as sink,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, text=True) as program,
    ):
        assert program.stdout is not None
        deadline = Timer(PROGRAM_SECONDS_MAX, program.kill)
        deadline.start()
        first = program.stdout.readline()
        if first.strip() == HALFWAY:
            broker.kill(SHARD)
            broker.restart()
        last = program.stdout.read()
        deadline.cancel()
    assert first.strip() == HALFWAY, errors.read_text()[-3000:]
    assert program.returncode == 0, errors.read_text()[-3000:]
    report: dict[str, Any] = json.loads(last.splitlines()[-1])
    return report


def assert_log_holds_each_value_once_in_order(task: Task) -> None:
    """Nothing lost, doubled or out of order in any partition: the producer was idempotent."""
    settings = {"bootstrap.servers": task.bootstrap, "group.id": "nobody"}
    reader = Consumer(settings | {"enable.partition.eof": True})
    starts = [TopicPartition(task.topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)]
    reader.assign(starts)
    found: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = reader.poll(READ_SECONDS_MAX)
        assert message is not None
        partition, error, value = message.partition(), message.error(), message.value()
        assert partition is not None
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(partition)
        else:
            found[partition].append((value or b"").decode())
    reader.close()
    assert all(each == by_number(each) for each in found.values())
    assert by_number([*chain(*found.values())]) == values(task.records)
