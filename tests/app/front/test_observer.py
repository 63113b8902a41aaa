"""Facts about a running broker, read without asking it."""

import os
import signal
from pathlib import Path
from uuid import uuid4

from smq.app.front.observer import Observer, grpc_certificates
from smq.front.metrics.facts import CertificateFacts
from smq.testing.smq_broker import SmqBroker


def test_facts_are_those_of_the_broker(smq_session_broker: SmqBroker) -> None:
    topic, broker = uuid4().hex[:8], smq_session_broker
    observer = Observer(broker.data_dir)
    before = observer.look()
    assert before.is_ready
    assert not before.missing
    with broker.connect() as client:
        client.create_topic(topic, 2)
        with client.producer() as producer:
            for number in range(10):
                producer.send(topic, b"v", partition=number % 2)
        with client.consumer(group=topic) as consumer:
            consumer.assign([(topic, 0)])
            consumer.commit({(topic, 0): 3})
    facts = observer.look()
    mine = [each for each in facts.partitions if each.topic == topic]
    assert [(each.partition, each.first_offset, each.end_offset) for each in mine] == [
        (0, 0, 5),
        (1, 0, 5),
    ]
    [offset] = [each for each in facts.offsets if each.group == topic]
    assert (offset.partition, offset.offset, offset.lag) == (0, 3, 2)
    assert facts.logs[0].counters["records_in"] - before.logs[0].counters["records_in"] == 10
    groups, lags = observer.lags()
    assert lags[groups.index(topic)] == 2
    assert observer.counters()["records_in"] == facts.logs[0].counters["records_in"]
    [log] = facts.logs
    assert 0 < log.wal_room_bytes <= log.wal_bytes_max
    assert {each.name for each in facts.processes} >= {"shard-1", "supervisor", "sealer"}
    assert all(each.resident_bytes > 0 for each in facts.processes)


def test_nothing_is_asked_so_a_shard_that_hangs_hides_nothing(
    smq_session_broker: SmqBroker,
) -> None:
    observer = Observer(smq_session_broker.data_dir)
    pid = smq_session_broker.status().processes["shard-1"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        facts = observer.look()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert facts.nodes
    assert not facts.missing


def test_an_observer_finds_no_facts_in_an_unserved_directory(tmp_path: Path) -> None:
    facts = Observer(tmp_path).look()
    assert not facts.is_ready
    assert not facts.nodes


def test_certificates_of_the_agents_ports_are_facts_where_there_are_some() -> None:
    day_ms = 86_400_000
    assert [*grpc_certificates([0, 5 * day_ms], 3 * day_ms)] == [CertificateFacts("AGENT", 2.0)]
    assert [*grpc_certificates([], 0)] == []
