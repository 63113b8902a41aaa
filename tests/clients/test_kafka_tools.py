"""Apache Kafka's own command-line tools, unmodified, ask and change a broker."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from smq.testing.kafka import KafkaUnavailable, kafka_jars
from smq.testing.processes import Broker
from tests.clients import toolchain
from tests.clients.brokers import running

pytestmark = [pytest.mark.clients, pytest.mark.long, pytest.mark.timeout(300)]

TOOL_SECONDS_MAX = 90
TOOLS = "org.apache.kafka.tools"
RECORDS = 1000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("broker")) as started:
        yield started


def run(broker: Broker, tool: str, *arguments: str, given: str = "") -> str:
    """What a tool prints; it must succeed."""
    try:
        jars = kafka_jars()
    except KafkaUnavailable as reason:
        toolchain.missing(str(reason))
    where = "--broker-list" if tool.endswith("VerifiableProducer") else "--bootstrap-server"
    command = ["java", "-Xmx256m", "-cp", f"{jars}/*", tool, where, broker.bootstrap, *arguments]
    done = subprocess.run(
        command,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=TOOL_SECONDS_MAX,
    )
    assert done.returncode == 0, f"{tool} {arguments}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def topics(broker: Broker, *arguments: str) -> str:
    return run(broker, f"{TOOLS}.TopicCommand", *arguments)


def configs(broker: Broker, *arguments: str) -> str:
    return run(broker, "kafka.admin.ConfigCommand", *arguments)


def offsets(broker: Broker, topic: str, time: str) -> str:
    return run(broker, f"{TOOLS}.GetOffsetShell", "--topic", topic, "--time", time).strip()


def test_a_topic_from_its_making_to_its_end(broker: Broker, tmp_path: Path) -> None:
    topics(broker, "--create", "--topic", "t", "--partitions", "1", "--replication-factor", "1")
    topics(broker, "--alter", "--topic", "t", "--partitions", "3")
    described = topics(broker, "--describe", "--topic", "t")
    assert "PartitionCount: 3" in described
    name = ("--entity-type", "topics", "--entity-name", "t")
    configs(broker, "--alter", *name, "--add-config", "retention.ms=3600000,segment.ms=60000")
    assert "retention.ms=3600000" in configs(broker, "--describe", *name)
    configs(broker, "--alter", *name, "--delete-config", "retention.ms")
    left = configs(broker, "--describe", *name)
    assert "segment.ms=60000" in left
    assert "retention.ms" not in left
    topics(broker, "--create", "--topic", "one", "--partitions", "1")
    lines = "".join(f"{number}\n" for number in range(10))
    run(broker, f"{TOOLS}.ConsoleProducer", "--topic", "one", given=lines)
    assert offsets(broker, "one", "-1") == "one:0:10"
    wanted = tmp_path / "wanted.json"
    wanted.write_text(
        '{"partitions": [{"topic": "one", "partition": 0, "offset": 4}], "version": 1}'
    )
    deleted = run(broker, f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "low_watermark: 4" in deleted
    assert offsets(broker, "one", "-2") == "one:0:4"
    topics(broker, "--delete", "--topic", "t")
    assert topics(broker, "--list").split() == ["one"]


def test_a_group_is_described_and_reset(broker: Broker) -> None:
    topics(broker, "--create", "--topic", "read", "--partitions", "1")
    run(
        broker,
        f"{TOOLS}.ProducerPerformance",
        *("--topic", "read", "--num-records", str(RECORDS)),
        *("--record-size", "100", "--throughput", "-1"),
    )
    read = run(
        broker,
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--topic", "read", "--group", "g", "--from-beginning", "--max-messages", str(RECORDS)),
    )
    assert len(read.splitlines()) == RECORDS
    command = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    assert run(broker, command, "--list").split() == ["g"]
    described = run(broker, command, "--describe", "--group", "g")
    assert re.search(rf"g +read +0 +{RECORDS} +{RECORDS} +0", described), described
    run(
        broker,
        command,
        *("--reset-offsets", "--group", "g", "--topic", "read", "--to-offset", "7", "--execute"),
    )
    described = run(broker, command, "--describe", "--group", "g")
    assert re.search(rf"g +read +0 +7 +{RECORDS} +{RECORDS - 7}", described), described
    run(broker, command, "--delete", "--group", "g")
    assert run(broker, command, "--list").split() == []


def test_what_a_broker_is(broker: Broker) -> None:
    versions = run(broker, f"{TOOLS}.BrokerApiVersionsCommand")
    assert "DeleteRecords(21): 0 to 2" in versions
    brokers = configs(
        broker, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1"
    )
    assert "num.partitions=" in brokers


def test_where_a_topic_lies_and_who_leads(broker: Broker) -> None:
    topics(broker, "--create", "--topic", "lies", "--partitions", "2")
    lines = "".join(f"{number}\n" for number in range(100))
    run(broker, f"{TOOLS}.ConsoleProducer", "--topic", "lies", given=lines)
    said = run(broker, f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", "lies")
    [found] = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    directories = [each for broker in found["brokers"] for each in broker["logDirs"]]
    assert [each["error"] for each in directories] == [None] * len(directories)
    sizes = {part["partition"]: part["size"] for each in directories for part in each["partitions"]}
    assert sizes.keys() == {"lies-0", "lies-1"}
    assert sum(sizes.values()) > 100
    status = run(broker, f"{TOOLS}.MetadataQuorumCommand", "describe", "--status")
    assert re.search(r"LeaderId: +1\n", status), status
    assert "CurrentVoters:" in status
    run(broker, f"{TOOLS}.FeatureCommand", "describe")
    assert run(broker, f"{TOOLS}.ClientMetricsCommand", "--list").split() == []


def test_transactions_are_listed_described_and_aborted(broker: Broker) -> None:
    topics(broker, "--create", "--topic", "ledger", "--partitions", "1")
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": "app-1",
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("ledger", b"x", partition=0)
    assert producer.flush(TOOL_SECONDS_MAX) == 0
    command = f"{TOOLS}.TransactionsCommand"
    place = ("--topic", "ledger", "--partition", "0")
    assert "Ongoing" in run(broker, command, "list", "--transactional-id-pattern", "app-.")
    assert "Ongoing" not in run(broker, command, "list", "--transactional-id-pattern", "app-..")
    described = run(broker, command, "describe", "--transactional-id", "app-1")
    assert "ledger-0" in described
    [_, known] = run(broker, command, "describe-producers", *place).splitlines()
    assert known.split()[-1] == "0", "where the transaction begins"
    hanging = run(broker, command, "find-hanging", "--topic", "ledger", "--partition", "0")
    assert len(hanging.splitlines()) == 1, "the coordinator knows it"
    run(broker, command, "abort", *place, "--start-offset", "0")
    [_, ended] = run(broker, command, "describe-producers", *place).splitlines()
    assert ended.split()[-1] == "None"
    assert offsets(broker, "ledger", "-1") == "ledger:0:2", "a record and its marker"
