"""Ctrl-C anywhere in send, or while it waits: nothing is torn, lost or blocked."""

from contextlib import suppress
from functools import partial

import pytest

from smq.client.producing.admission import Admission
from smq.client.producing.batching.accumulator import Accumulator
from smq.client.producing.batching.partition_queues import PartitionQueues
from smq.client.producing.batching.pending_parcels import PendingParcels
from smq.client.producing.delivery.futures import BufferFull
from smq.client.producing.delivery.parcel import Parcel
from smq.client.producing.open_parcels import OpenParcels
from smq.client.producing.outbox import Outbox
from smq.client.producing.producer import Producer
from smq.client.producing.sender import Sender
from smq.client.producing.waiters import Waiters, without
from tests.client.fake_kafka import FakeKafka
from tests.client.interrupts import code_of, is_free, is_interrupted
from tests.client.producers import WAIT_S, Open, open_producer

__all__ = ["open_producer"]  # A fixture.


def test_an_interrupt_anywhere_in_send_tears_loses_and_blocks_nothing(
    kafka: FakeKafka, open_producer: Open
) -> None:
    (partition,) = kafka.add_topic("t")
    producer = open_producer(batch_bytes=1024)
    codes = code_of(
        Producer.send,
        Outbox.grow_or_send,
        Outbox.send_open,
        Outbox.send_closed,
        Outbox._take,
        OpenParcels.grow,
        OpenParcels.remove,
        Accumulator.add,
        PendingParcels.add,
        PartitionQueues.enqueue,
        Parcel.close,
        Parcel.fill,
    )
    producer.send("t", b"").result(WAIT_S)
    sender, sent, broken = producer._sender, [], []
    assert sender is not None

    def send(name: bytes) -> None:
        sent.append(producer.send("t", name + b" " * 600, key=name + b" " * 600))

    kafka.takes_records.clear()
    producer.send("t", b"")  # It is on its way: those behind it share parcels, of one or two.
    is_there, number = True, 0
    while is_there:
        for name in (b"%d a" % number, b"%d b" % number):
            if is_there := is_interrupted(partial(send, name), codes, number):
                broken.append(name)
            assert is_free(sender.lock, WAIT_S)
        send(b"%d c" % number)
        number += 1
    kafka.takes_records.set()
    assert number > 20
    assert len({each.result(WAIT_S).offset for each in sent}) == len(sent)
    producer.flush(WAIT_S)
    records = [(each.key or b"", each.value) for each in partition.records()]
    assert all(key == value or not key for key, value in records)
    names = [key.strip() for key, _ in records if key]
    assert len(names) == len({*names})
    assert len(sent) <= len(names) <= len(sent) + len(broken)


@pytest.mark.parametrize("waits_for", ["a topic", "room", "a fate"])
def test_an_interrupt_of_who_waits_leaves_the_lock_to_others(
    kafka: FakeKafka, open_producer: Open, waits_for: str
) -> None:
    kafka.add_topic("t")
    producer = open_producer(block_s=0.001, buffer_bytes=1)
    producer.send("t", b"").result(WAIT_S)
    sender, is_there, number = producer._sender, True, 0
    assert sender is not None
    codes = code_of(
        Sender.open_parcel,
        Sender.wait,
        Outbox.open_parcel,
        Outbox.learn,
        OpenParcels.add,
        Admission.await_room,
        Admission.await_topic,
        Admission._learn_first,
        Admission._wait_for_room,
        Admission.wait_for,
        Waiters.wait_for,
    )
    codes |= code_of(without)
    if waits_for != "a topic":
        kafka.takes_records.clear()
    future = producer.send("t", b"")
    while is_there:
        kafka.add_topic(f"t{number}")

        def wait(topic: str = f"t{number}") -> None:
            with suppress(TimeoutError, BufferFull):
                if waits_for == "a fate":
                    future.result(0.001)
                else:
                    producer.send("t" if waits_for == "room" else topic, b"")

        is_there = is_interrupted(wait, codes, number)
        assert is_free(sender.lock, WAIT_S)
        number += 1
    assert number > 10
    kafka.takes_records.set()
    producer.flush(WAIT_S)
