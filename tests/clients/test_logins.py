"""The clients of `test_clients` log in, with the rights that their work needs and no others."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.security.acls import Operation, ResourceType
from smq.testing.smq_broker import SmqBroker
from tests.broker import guarded
from tests.broker.users import add_users
from tests.clients import toolchain
from tests.clients.programs.contract import LOGIN, Task
from tests.clients.test_clients import RESUMING, arguments, by_number, values
from tests.security.issuer import AUDIENCE, ISSUER, claims_of, token, write_jwks

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, READER = "alice", "bob"  # The second may not write.
PASSWORDS = {USER: "pencil; with = and \u00fc", READER: "stylus"}
PARTITIONS = 2
RECORDS = 20
RECORDS_OF_KCAT = 4  # It is started for each.
PROGRAM_SECONDS_MAX = 90

OLD_VERSION = "0.11.0"  # The first whose formats need no `legacy.formats`.
OLD_RECORDS = 80  # Of old_kafka_python_client.

Way = tuple[str, str]
SCRAM_IN_TLS: Way = ("SASL_SSL", "SCRAM-SHA-512")
PLAIN_IN_TLS: Way = ("SASL_SSL", "PLAIN")
SCRAM: Way = ("SASL_PLAINTEXT", "SCRAM-SHA-256")
PLAIN: Way = ("SASL_PLAINTEXT", "PLAIN")
CERTIFICATE: Way = ("SSL", "")
TOKEN: Way = ("SASL_SSL", "OAUTHBEARER")
EACH = [SCRAM_IN_TLS, PLAIN_IN_TLS, SCRAM, CERTIFICATE]
ALL = [(each, way) for each in ("SASL_SSL", "SASL_PLAINTEXT") for way in MECHANISMS] + [CERTIFICATE]
# These go each way through tests/broker/test_logins.py, and those of librdkafka and of Java show
# their tokens in tests/broker/test_token_logins.py: here, it is their program that logs in.
ELSEWHERE = {each: [SCRAM_IN_TLS] for each in ("confluent-kafka", "kafka-python", "aiokafka")} | {
    "java": EACH
}
WAYS = ELSEWHERE | {
    "franz-go": [*ALL, TOKEN],
    "sarama": [*ALL, TOKEN],
    "kafkajs": [*ALL, TOKEN],
    # kafka-go has no OAUTHBEARER.
    "kafka-go": ALL,
    # Debian's kcat has librdkafka 2.0.2, whose SCRAM sends its nonce twice: Kafka 4 refuses that,
    # too. Its tokens are its own and without a signature, which nobody should take.
    "kcat": [PLAIN_IN_TLS, PLAIN, CERTIFICATE],
}
assert WAYS.keys() == RESUMING.keys()

# What those say that do not go on, or wait, after a record that their user may not write. Whose
# producer is idempotent is refused its id.
REFUSALS = {
    "java": "ClusterAuthorizationException",
    "franz-go": "CLUSTER_AUTHORIZATION_FAILED",
    "sarama": "not authorized to access this topic",
    "kafka-go": "[29] Topic Authorization Failed",
    "kafkajs": "TOPIC_AUTHORIZATION_FAILED",
}


class Doors(NamedTuple):
    broker: SmqBroker
    certs: Path

    def login(self, protocol: str, mechanism: str, user: str = USER) -> str:
        properties = {"security.protocol": protocol}
        if mechanism:
            properties["sasl.mechanism"] = mechanism
            properties["sasl.username"] = user
            properties["sasl.password"] = PASSWORDS[user]
        if mechanism == TOKEN[1]:
            properties["sasl.password"] = token(claims_of(time.time(), sub=user))
        if protocol != "SASL_PLAINTEXT":
            properties["ssl.ca.location"] = str(self.certs / "ca.pem")
        if protocol == "SSL":
            pem = str(self.certs / f"{user}.pem")
            properties |= {"ssl.certificate.location": pem, "ssl.key.location": pem}
        return json.dumps(properties, ensure_ascii=False)

    def run(self, client: str, task: Task, login: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*RESUMING[client](), *arguments("resume", task)],
            env=os.environ | {LOGIN: login},
            capture_output=True,
            text=True,
            check=False,
            timeout=PROGRAM_SECONDS_MAX,
        )

    def task(self, protocol: str, count: int) -> Task:
        """A topic that the user may write and read in a group, and the reader only read."""
        name = f"logins-{uuid4().hex[:8]}"
        task = Task(f"127.0.0.1:{self.broker.port_of(protocol)}", name, f"group-of-{name}", count)
        with self.broker.connect() as client:
            client.create_topic(task.topic, PARTITIONS)
        guarded.allow(self.broker, USER, ResourceType.TOPIC, task.topic, Operation.WRITE)
        for user in PASSWORDS:
            guarded.allow(self.broker, user, ResourceType.TOPIC, task.topic, Operation.READ)
            guarded.allow(self.broker, user, ResourceType.GROUP, task.group, Operation.READ)
        return task


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    certs = tmp_path_factory.mktemp("certs")
    done = CliRunner().invoke(app, ["certs", str(certs), "--client", USER])
    assert done.exit_code == 0, done.output
    settings = guarded.SETTINGS | {
        "shards": str(PARTITIONS),
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, TOKEN[1])),
        "sasl.oauthbearer.jwks.endpoint.url": write_jwks(certs / "jwks.json", "rsa"),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "ssl.keystore.location": str(certs / "broker.pem"),
        "ssl.truststore.location": str(certs / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "listener.name.ssl.ssl.client.auth": "required",
    }
    listeners = {each: each for each in ("SASL_PLAINTEXT", "SASL_SSL", "SSL")}
    with SmqBroker(tmp_path_factory.mktemp("b"), settings, listeners=listeners) as broker:
        add_users(broker.bootstrap, PASSWORDS)
        yield Doors(broker, certs)


@pytest.mark.parametrize("client", WAYS)
def test_a_client_logs_in_each_way_that_it_knows(doors: Doors, client: str) -> None:
    """All at once: most of the time each waits, for its group above all."""
    RESUMING[client]()  # It is built before.

    def resumed(way: Way) -> tuple[Task, subprocess.CompletedProcess[str]]:
        task = doors.task(way[0], RECORDS_OF_KCAT if client == "kcat" else RECORDS)
        return task, doors.run(client, task, doors.login(*way))

    ways = WAYS[client]
    with ThreadPoolExecutor(len(ways)) as pool:
        for way, (task, done) in zip(ways, pool.map(resumed, ways), strict=True):
            assert done.returncode == 0, f"{way}: {done.stderr[-3000:]}"
            found = json.loads(done.stdout.splitlines()[-1])
            assert found["wrong"] == 0, way
            assert len(found["first"]) == task.half, way
            assert by_number(found["first"] + found["second"]) == values(task.records), way


@pytest.mark.parametrize(("protocol", "mechanism"), EACH)
def test_a_client_from_before_kafka_1_logs_in_with_raw_tokens(
    doors: Doors, protocol: str, mechanism: str
) -> None:
    task = doors.task(protocol, OLD_RECORDS)
    group = f"old-{OLD_VERSION}"
    guarded.allow(doors.broker, USER, ResourceType.GROUP, group, Operation.READ)
    command = toolchain.python("old_kafka_python_client")
    done = subprocess.run(
        [*command, task.bootstrap, task.topic, OLD_VERSION, str(task.records)],
        env=os.environ
        | {
            LOGIN: doors.login(protocol, mechanism),
            "PYTHONPATH": str(toolchain.old_kafka_python()),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=PROGRAM_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(json.loads(done.stdout)["rows"]) == task.records


@pytest.mark.parametrize("client", REFUSALS)
def test_a_client_without_the_right_to_write_writes_nothing_and_says_why(
    doors: Doors, client: str
) -> None:
    protocol, mechanism = SCRAM_IN_TLS
    task = doors.task(protocol, RECORDS)
    done = doors.run(client, task, doors.login(protocol, mechanism, READER))
    assert done.returncode != 0
    assert REFUSALS[client] in done.stderr
    with doors.broker.connect() as connection, connection.consumer() as consumer:
        consumer.assign([(task.topic, each) for each in range(PARTITIONS)])
        assert set(consumer.find("latest").values()) == {0}
