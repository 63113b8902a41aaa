"""A shard that hangs: its own records are late, and nothing else."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import smq
from smq.client.errors import BrokerUnavailable
from smq.testing import broker
from smq.testing.smq_broker import SmqBroker

WAIT_S = 30


@contextmanager
def hung(running: SmqBroker, name: str) -> Iterator[None]:
    pid = running.status().processes[name].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["shared memory", "kafka"])
def test_a_shard_that_hangs_delays_no_other_and_its_records_fail_in_time(transport: str) -> None:
    with (
        broker(shards=2) as running,
        running.connect(transport=transport, timeout_s=4, metadata_max_age_s=0.5) as client,
    ):
        client.create_topic("t", 2)
        with client.producer(delivery_timeout_s=2) as producer:
            healthy = next(each for each in (0, 1) if leader(client, each) == 2)
            for partition in (0, 1):
                producer.send("t", b"0", partition=partition).result(WAIT_S)
            with hung(running, "shard-1"):
                late = [producer.send("t", b"%d" % n, partition=1 - healthy) for n in (1, 2)]
                while not all(each.done() for each in late):
                    producer.send("t", b"1", partition=healthy).result(WAIT_S)
                for each in late:
                    assert isinstance(each.exception(), BrokerUnavailable)
                assert client.topics() == {"t": 2}
                with running.connect(transport=transport, timeout_s=4) as other:
                    assert other.transport == transport
            while producer.send("t", b"9", partition=1 - healthy).exception(WAIT_S) is not None:
                pass
        assert values(client, 1 - healthy) in ([0, 1, 2, 9], [0, 1, 9], [0, 9])


def leader(client: smq.Client, partition: int) -> int:
    return client._ask(lambda cluster: cluster.topic("t")).leaders[partition]


def values(client: smq.Client, partition: int) -> list[int]:
    found: list[int] = []
    with client.consumer("t", start="earliest") as consumer:
        while 9 not in found:
            with consumer.poll(WAIT_S) as batch:
                found += [
                    int(bytes(each.value or b"")) for each in batch if each.partition == partition
                ]
    return found
