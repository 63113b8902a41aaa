"""Apache Kafka's own command-line tools, unmodified, ask and change a broker."""

import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer

from smq.testing.processes import Broker
from tests.clients.brokers import running
from tests.clients.kafka_tools import Toolbox

pytestmark = [pytest.mark.clients, pytest.mark.long, pytest.mark.timeout(300)]

RECORDS = 100
SECONDS_MAX = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="module")
def tools(broker: Broker) -> Iterator[Toolbox]:
    with Toolbox(broker) as toolbox:
        yield toolbox


NAMES = count()


@pytest.fixture
def topic(tools: Toolbox) -> str:
    """A topic of the test's own, with one partition and 100 records."""
    name = f"topic-{next(NAMES)}"
    tools.topics("--create", "--topic", name, "--partitions", "1")
    tools.produce(name, RECORDS)
    return name


@pytest.fixture
def group(tools: Toolbox, topic: str) -> str:
    """A group that has read all of the topic."""
    name = f"readers-of-{topic}"
    read = tools.run(
        "consumer.ConsoleConsumer",
        *("--topic", topic, "--group", name, "--from-beginning", "--max-messages", str(RECORDS)),
    )
    lines = [line for line in read.splitlines() if line.isdigit()]
    assert lines == [str(number) for number in range(RECORDS)]
    return name


def committed(tools: Toolbox, group: str) -> list[str]:
    """Lag and all, as `--describe` says it: offset, end, lag."""
    described = tools.groups("--describe", "--group", group)
    rows = re.findall(rf"^{group} +\S+ +0 +(\S+) +(\S+) +(\S+)", described, re.MULTILINE)
    assert len(rows) == 1, described
    return list(rows[0])


def test_a_topic_from_its_making_to_its_end(tools: Toolbox) -> None:
    tools.topics("--create", "--topic", "t", "--partitions", "1", "--replication-factor", "1")
    tools.topics("--create", "--topic", "t", "--if-not-exists")
    assert "already exists" in tools.refused("TopicCommand", "--create", "--topic", "t")
    tools.topics("--alter", "--topic", "t", "--partitions", "3")
    assert "PartitionCount: 3" in tools.topics("--describe", "--topic", "t")
    assert "t" in tools.topics("--list").split()
    tools.topics("--delete", "--topic", "t")
    assert "t" not in tools.topics("--list").split()
    assert "does not exist" in tools.refused("TopicCommand", "--describe", "--topic", "t")


def test_the_settings_of_a_topic(tools: Toolbox) -> None:
    made = ("--config", "cleanup.policy=compact", "--config", "retention.ms=7200000")
    tools.topics("--create", "--topic", "set", *made)
    assert "cleanup.policy=compact" in tools.topics("--describe", "--topic", "set")
    name = ("--entity-type", "topics", "--entity-name", "set")
    tools.configs("--alter", *name, "--add-config", "retention.ms=3600000,segment.ms=60000")
    assert "retention.ms=3600000" in tools.configs("--describe", *name)
    tools.configs("--alter", *name, "--delete-config", "retention.ms")
    left = tools.configs("--describe", *name)
    assert "segment.ms=60000" in left
    assert "retention.ms" not in left
    assert "retention.ms=604800000" in tools.configs("--describe", "--all", *name)
    said = tools.refused(
        "kafka.admin.ConfigCommand", "--alter", *name, "--add-config", "retention.ms=soon"
    )
    assert "retention.ms" in said
    assert "Topic: set" in tools.topics("--describe", "--topics-with-overrides")


def test_records_are_deleted_and_offsets_found(tools: Toolbox, topic: str, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.json"
    part = {"topic": topic, "partition": 0, "offset": 4}
    wanted.write_text(json.dumps({"partitions": [part], "version": 1}))
    deleted = tools.run("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "low_watermark: 4" in deleted
    ends = {"earliest": 4, "-2": 4, "latest": RECORDS, "-1": RECORDS, "earliest-local": 4, "0": 4}
    for time, offset in ends.items():
        assert tools.offsets(topic, time) == f"{topic}:0:{offset}", time
    newest = int(tools.offsets(topic, "max-timestamp").rpartition(":")[2])
    assert 4 <= newest < RECORDS
    for nothing in ("latest-tiered", "4102444800000"):
        assert tools.offsets(topic, nothing) == ""
    some = ("--topic-partitions", f"{topic}:0-1,unknown:0", "--time", "latest")
    assert tools.run("GetOffsetShell", *some).split() == [f"{topic}:0:{RECORDS}"]


def test_a_group_is_listed_described_and_deleted(tools: Toolbox, group: str, topic: str) -> None:
    assert group in tools.groups("--list").split()
    assert re.search(rf"{group} +Empty", tools.groups("--list", "--state"))
    assert re.search(rf"{group} +Classic +consumer", tools.run("GroupsCommand", "--list"))
    assert committed(tools, group) == [str(RECORDS), str(RECORDS), "0"]
    state = tools.groups("--describe", "--group", group, "--state")
    assert re.search(rf"{group} .* Empty +0", state), state
    members = tools.groups("--describe", "--all-groups", "--members", "--verbose")
    assert f"'{group}' has no active members" in members
    deleted = tools.groups("--delete-offsets", "--group", group, "--topic", topic)
    assert re.search(rf"{topic} +0 +Successful", deleted), deleted
    tools.groups("--delete", "--group", group)
    assert group not in tools.groups("--list").split()
    assert "The group id does not exist" in tools.groups("--delete", "--group", group)


RESETS = {
    "--to-earliest": (0, ()),
    "--to-latest": (RECORDS, ()),
    "--to-current": (RECORDS, ()),
    "--to-offset": (7, ("7",)),
    "--shift-by": (RECORDS - 10, ("-10",)),
    "--to-datetime": (0, ("2020-01-01T00:00:00.000",)),
    "--by-duration": (0, ("P1D",)),
}


@pytest.mark.parametrize("how", RESETS)
def test_a_group_is_reset(tools: Toolbox, group: str, topic: str, how: str) -> None:
    wanted, arguments = RESETS[how]
    reset = ("--reset-offsets", "--group", group, "--topic", topic, how, *arguments)
    tools.groups(*reset, "--dry-run")
    assert committed(tools, group)[0] == str(RECORDS)
    tools.groups(*reset, "--execute")
    assert committed(tools, group) == [str(wanted), str(RECORDS), str(RECORDS - wanted)]


def test_a_group_is_reset_from_a_file(
    tools: Toolbox, group: str, topic: str, tmp_path: Path
) -> None:
    exported = tools.groups(
        *("--reset-offsets", "--group", group, "--all-topics", "--to-offset", "5", "--export"),
        "--dry-run",
    )
    assert exported.split() == [f"{topic},0,5"]
    file = tmp_path / "offsets.csv"
    file.write_text(exported)
    tools.groups("--reset-offsets", "--group", group, "--from-file", str(file), "--execute")
    assert committed(tools, group)[0] == "5"


def test_transactions_are_listed_described_and_aborted(
    broker: Broker, tools: Toolbox, topic: str
) -> None:
    wanted = {"transactional.id": "app-1", "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **wanted})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(SECONDS_MAX) == 0
    command, place = "TransactionsCommand", ("--topic", topic, "--partition", "0")
    assert re.search(r"app-1 *\t\S+ *\t\S+ *\tOngoing", tools.run(command, "list"))
    assert "Ongoing" in tools.run(command, "list", "--transactional-id-pattern", "app-.")
    assert "Ongoing" not in tools.run(command, "list", "--transactional-id-pattern", "app-..")
    described = tools.run(command, "describe", "--transactional-id", "app-1")
    assert f"{topic}-0" in described
    known = tools.run(command, "describe-producers", *place).splitlines()[-1]
    assert known.split()[-1] == str(RECORDS), "where the transaction begins"
    hanging = tools.run(command, "find-hanging", *place)
    assert len(hanging.splitlines()) == 1, "the coordinator knows it"
    everywhere = tools.run(command, "find-hanging", "--broker-id", "1")
    assert len(everywhere.splitlines()) == 1, "internal topics are asked too: data fault 32"
    tools.run(command, "abort", *place, "--start-offset", str(RECORDS))
    ended = tools.run(command, "describe-producers", *place).splitlines()[-1]
    assert ended.split()[-1] == "None"
    assert tools.offsets(topic, "latest") == f"{topic}:0:{RECORDS + 2}", "a record and its marker"
    said = tools.refused(command, "describe", "--transactional-id", "unknown")
    assert "unknown" in said


def test_performance_is_measured(tools: Toolbox) -> None:
    tools.topics("--create", "--topic", "perf", "--partitions", "2")
    load = ("--topic", "perf", "--num-records", "500", "--record-size", "100")
    assert "500 records sent" in tools.run("ProducerPerformance", *load, "--throughput", "-1")
    inside = ("--transactional-id", "perf", "--transaction-duration-ms", "50")
    sent = tools.run("ProducerPerformance", *load, "--throughput", "-1", *inside)
    assert "500 records sent" in sent
    read = tools.run(
        "ConsumerPerformance",
        *("--topic", "perf", "--num-records", "1000", "--group", "perf"),
        *("--command-property", "isolation.level=read_committed"),
    )
    assert ", 1000, " in read
    tools.topics("--create", "--topic", "latency", "--partitions", "1")
    latency = ("--topic", "latency", "--num-records", "20", "--record-size", "100")
    assert "99th = " in tools.run("EndToEndLatency", *latency, "--producer-acks", "all")


def events(printed: str) -> list[dict[str, object]]:
    """What a verifiable client says, a line of JSON each."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def test_verifiable_clients(tools: Toolbox) -> None:
    tools.topics("--create", "--topic", "verify", "--partitions", "2")
    to = ("--topic", "verify", "--max-messages", "50")
    sent = events(tools.alone("VerifiableProducer", *to, "--acks", "-1"))
    acked = [each["value"] for each in sent if each["name"] == "producer_send_success"]
    assert sorted(acked, key=str) == sorted(map(str, range(50)), key=str)
    group = ("--group-id", "verify", "--reset-policy", "earliest", "--verbose")
    read = events(tools.run("VerifiableConsumer", *to, *group))
    seen = [each["value"] for each in read if each["name"] == "record_data"]
    assert sorted(seen, key=str) == sorted(map(str, range(50)), key=str)
    assert any(each["name"] == "offsets_committed" and each["success"] for each in read)


def test_kafkas_tools_describe_the_broker(tools: Toolbox) -> None:
    assert "DeleteRecords(21): 0 to 2" in tools.run("BrokerApiVersionsCommand")
    of = ("--entity-type", "brokers", "--entity-name", "1")
    assert "num.partitions=" in tools.configs("--describe", "--all", *of)
    assert re.search(r"Cluster ID: \S{22}", tools.run("ClusterTool", "cluster-id"))
    assert len(re.findall(r"unfenced +broker", tools.run("ClusterTool", "list-endpoints"))) == 2
    status = tools.run("MetadataQuorumCommand", "describe", "--status")
    assert re.search(r"LeaderId: +1\n", status), status
    assert "CurrentVoters:" in status
    replication = tools.run("MetadataQuorumCommand", "describe", "--replication")
    assert re.search(r"^1 .*Leader", replication, re.MULTILINE)
    features = tools.run("FeatureCommand", "describe")
    assert re.search(r"transaction.version.*FinalizedVersionLevel: 2", features)
    tools.run("FeatureCommand", "upgrade", "--feature", "transaction.version=2")
    said = tools.refused("FeatureCommand", "upgrade", "--feature", "transaction.version=3")
    assert "Could not upgrade transaction.version to 3" in said


def test_the_settings_of_brokers_change(tools: Toolbox) -> None:
    everybody = ("--entity-type", "brokers", "--entity-default")
    one = ("--entity-type", "brokers", "--entity-name", "1")
    tools.configs("--alter", *everybody, "--add-config", "log.retention.ms=7200000")
    tools.configs("--alter", *one, "--add-config", "log.retention.ms=3600000")
    assert "log.retention.ms=7200000" in tools.configs("--describe", *everybody)
    described = tools.configs("--describe", *one)
    assert "log.retention.ms=3600000" in described
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7200000" in described
    for whom in (everybody, one):
        tools.configs("--alter", *whom, "--delete-config", "log.retention.ms")
        assert "log.retention.ms" not in tools.configs("--describe", *whom)


def test_the_quotas_of_clients_change(tools: Toolbox) -> None:
    client = ("--entity-type", "clients", "--entity-name", "loud")
    default = ("--entity-type", "users", "--entity-default")
    tools.configs("--alter", *client, "--add-config", "producer_byte_rate=1000000")
    tools.configs("--alter", *default, "--add-config", "request_percentage=50")
    assert "producer_byte_rate=1000000.0" in tools.configs("--describe", *client)
    assert "request_percentage=50.0" in tools.configs("--describe", *default)
    everybody = tools.configs("--describe", "--entity-type", "users")
    assert "request_percentage=50.0" in everybody, "and no user has credentials: data fault 34"
    tools.configs("--alter", *client, "--delete-config", "producer_byte_rate")
    assert "producer_byte_rate" not in tools.configs("--describe", *client)
    tools.configs("--alter", *default, "--delete-config", "request_percentage")


def test_where_a_topic_lies(tools: Toolbox, topic: str) -> None:
    said = tools.run("LogDirsCommand", "--describe", "--topic-list", topic)
    [found] = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    directories = [each for broker in found["brokers"] for each in broker["logDirs"]]
    assert [each["error"] for each in directories] == [None] * len(directories)
    sizes = {part["partition"]: part["size"] for each in directories for part in each["partitions"]}
    assert sizes.keys() == {f"{topic}-0"}
    assert sizes[f"{topic}-0"] > RECORDS


def test_leaders_stay(tools: Toolbox, topic: str, tmp_path: Path) -> None:
    tools.run("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    one = ("--topic", topic, "--partition", "0")
    elected = tools.run("LeaderElectionCommand", "--election-type", "unclean", *one)
    assert f"already elected for partitions {topic}-0" in elected
    moves = tmp_path / "topics.json"
    moves.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    plan = ("--generate", "--topics-to-move-json-file", str(moves), "--broker-list", "1,2")
    generated = tools.run("reassign.ReassignPartitionsCommand", *plan)
    now = generated.split("Current partition replica assignment\n")[1].splitlines()[0]
    here = tmp_path / "here.json"
    here.write_text(now)
    verified = tools.run(
        "reassign.ReassignPartitionsCommand", "--verify", "--reassignment-json-file", str(here)
    )
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    [part] = json.loads(now)["partitions"]
    there = tmp_path / "there.json"
    part |= {"replicas": [3 - part["replicas"][0]], "log_dirs": ["any"]}
    there.write_text(json.dumps({"version": 1, "partitions": [part]}))
    said = tools.refused(
        "reassign.ReassignPartitionsCommand", "--execute", "--reassignment-json-file", str(there)
    )
    assert "Partitions do not move" in said
    listed = tools.run("reassign.ReassignPartitionsCommand", "--list")
    assert "No partition reassignments found." in listed


def test_kafkas_tools_list_nothing_for_features_smq_lacks(tools: Toolbox) -> None:
    assert tools.run("ClientMetricsCommand", "--list").split() == []
    assert tools.run("streams.StreamsGroupCommand", "--list").split() == []
    assert tools.run("consumer.group.ShareGroupCommand", "--list").split() == []
    assert "No Authorizer is configured" in tools.refused("AclCommand", "--list")
