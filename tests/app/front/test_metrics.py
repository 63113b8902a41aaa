"""/metrics of a broker with HTTP."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from smq.wire.generated.heartbeat import HeartbeatRequest
from tests.app.fake_broker import eventually
from tests.app.http_client import ask, console_token
from tests.app.shard_client import fetch
from tests.broker.hostile import RawClient
from tests.shard.shard_bench import batch, produce_request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, {"http.port": "0"}) as broker:
        yield broker


def test_a_scraper_reads_it_and_many_scrapers_read_one_page(broker: SmqBroker) -> None:
    told = ask(broker, "GET", "/metrics")
    assert told.status == 200
    assert told.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {each.name: each for each in text_string_to_metric_families(told.body.decode())}
    [ready] = families["smq_ready"].samples
    assert ready.value == 1
    processes = {each.labels["process"] for each in families["smq_process_ready"].samples}
    assert processes == {"shard-1", "coordinator", "sealer", "front", "supervisor"}
    with ThreadPoolExecutor(50) as pool:
        answers = [*pool.map(lambda _: ask(broker, "GET", "/metrics").status, range(100))]
    assert answers == [200] * 100


def test_requests_that_a_kernel_answers_are_timed_too(broker: SmqBroker) -> None:
    with broker.connect() as client, client.producer() as producer:
        client.create_topic("t", 1)
        for _ in range(20):
            producer.send("t", b"v").result()

    def counted() -> float:
        page = ask(broker, "GET", "/metrics").body.decode()
        families = {each.name: each for each in text_string_to_metric_families(page)}
        samples = families["smq_request_seconds"].samples
        return sum(
            each.value
            for each in samples
            if each.name.endswith("_count") and each.labels["api"] == "Produce"
        )

    eventually(lambda: counted() >= 20, "20 requests are counted")


def errors_of(broker: SmqBroker) -> dict[tuple[str, str], float]:
    page = ask(broker, "GET", "/metrics").body.decode()
    families = {each.name: each for each in text_string_to_metric_families(page)}
    samples = families["smq_request_errors"].samples
    return {(each.labels["api"], each.labels["error"]): each.value for each in samples}


def provoke_errors(broker: SmqBroker) -> None:
    """Errors of requests that kernels, the shard and the coordinator answer."""
    with RawClient(broker.port) as client:
        for _ in range(3):
            client.send(produce_request({"nowhere": {0: batch(b"v"), 1: batch(b"v")}}))
            assert client.answer()
        client.send(fetch("t", offset=1_000_000))
        assert client.answer()
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="stranger")
        client.ask("Heartbeat", 4, heartbeat)
        bad = [
            CreatableTopic(name="bad name!", num_partitions=1, replication_factor=1),
            CreatableTopic(name="t", num_partitions=1, replication_factor=1),
        ]
        client.ask("CreateTopics", 7, CreateTopicsRequest(topics=bad, timeout_ms=1000))


PROVOKED = {
    ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 6,
    ("Fetch", "OFFSET_OUT_OF_RANGE"): 1,
    ("Heartbeat", "UNKNOWN_MEMBER_ID"): 1,
    ("CreateTopics", "INVALID_TOPIC_EXCEPTION"): 1,
    ("CreateTopics", "TOPIC_ALREADY_EXISTS"): 1,
}


def test_errors_are_counted_by_api_and_outlive_the_processes_that_answered(
    broker: SmqBroker,
) -> None:
    with broker.connect() as client:
        client.create_topic("t", 1)
    before = errors_of(broker)
    assert not before.keys() & PROVOKED.keys()
    provoke_errors(broker)
    eventually(lambda: errors_of(broker) == before | PROVOKED, "the errors are counted")
    broker.kill("shard-1")
    broker.kill("coordinator")
    broker.restart()
    assert errors_of(broker).items() >= PROVOKED.items()
    provoke_errors(broker)
    twice = {each: 2 * count for each, count in PROVOKED.items()}
    eventually(lambda: errors_of(broker).items() >= twice.items(), "they are counted further")


def test_syncs_are_counted_by_how_long_they_took(broker: SmqBroker) -> None:
    with broker.connect() as client, client.producer() as producer:
        client.create_topic("safe", 1, configs={"smq.durability": "disk"})
        for _ in range(5):
            producer.send("safe", b"v").result()

    def counted() -> bool:
        page = ask(broker, "GET", "/metrics").body.decode()
        families = {each.name: each for each in text_string_to_metric_families(page)}
        samples = families["smq_wal_sync_seconds"].samples
        buckets = [each.value for each in samples if each.name.endswith("_bucket")]
        [count] = (each.value for each in samples if each.name.endswith("_count"))
        [total] = (each.value for each in samples if each.name.endswith("_sum"))
        assert buckets == sorted(buckets)
        assert buckets[-1] == count
        return count >= 5 and total > 0

    eventually(counted, "5 syncs are counted")


def test_a_broker_is_ready_and_can_be_looked_into(broker: SmqBroker) -> None:
    told = ask(broker, "GET", "/health/ready")
    assert (told.status, told.json["ready"]) == (200, True)
    assert ask(broker, "GET", "/health/live").status == 200
    logs = ask(broker, "GET", "/debug/logs").json
    assert [each["log"] for each in logs["logs"]] == [0]


def test_a_late_group_is_said_on_stderr(tmp_path: Path) -> None:
    settings = {"http.port": "0", "lag.alert.rules": "late*: records > 3 for 0s"}
    with SmqBroker(tmp_path, settings) as broker:
        with broker.connect() as client:
            client.create_topic("t", 1)
            with client.producer() as producer:
                for _ in range(5):
                    producer.send("t", b"v")
            with client.consumer(group="late-one") as consumer:
                consumer.assign([("t", 0)])
                consumer.commit({("t", 0): 1})
        expected = "alert: group late-one is behind: 4 records"
        eventually(lambda: expected in broker.output.read_text(), "the alert is said")


def test_the_console_is_at_the_front_and_its_token_lets_it_change_something(
    broker: SmqBroker,
) -> None:
    token = console_token(broker)
    page = ask(broker, "GET", "/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"all serve" in page.body
    assert ask(broker, "POST", "/topics", b"name=made").status == 403
    assert ask(broker, "POST", "/topics", b"name=made", x_smq_token=token).status == 204
    broker.kill("front")  # The token is the supervisor's: the next front knows it.
    eventually(lambda: broker.status().processes["front"].ready, "the front is back")
    told = ask(broker, "POST", "/topics/made/messages", b"value=v", x_smq_token=token)
    assert b"Appended to partition" in told.body
    assert b"1 record." in ask(broker, "GET", "/topics/made/messages").body
    eventually(lambda: ask(broker, "GET", "/console/rates").json["series"][0], "rates are known")


def test_a_hundred_consoles_at_once_are_answered(broker: SmqBroker) -> None:
    with ThreadPoolExecutor(50) as pool:
        answers = [*pool.map(lambda _: ask(broker, "GET", "/").status, range(100))]
    assert answers == [200] * 100
