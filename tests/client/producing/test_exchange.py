"""An unawaited answer wakes no thread; a caller that asks gets it all the same."""

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from smq.client.clock import SYSTEM_CLOCK
from smq.client.producing.batching.accumulator import Accumulator
from smq.client.producing.batching.in_flight import ANSWER_MS_MAX
from smq.client.producing.channel.channels import Channels
from smq.client.producing.delivery.parcel import Parcel
from smq.client.producing.encode.batch_writer import BatchWriter
from smq.client.producing.exchange import NAP_MS, Exchange
from smq.client.wait import wait_readable
from smq.wire.compression import Codec
from tests.client.fake_shard import FakeChannel, FakeShard
from tests.client.interrupts import code_of, is_interrupted
from tests.client.parcels import closed

NODE = 1
LONG_MS = 60_000


class Polled(FakeChannel):
    """A channel that can be polled; it is not rung."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptor = os.eventfd(0)
        self.is_armed = False
        self.is_closing = False  # Found by whoever wakes.

    def fileno(self) -> int:
        return self.descriptor

    def arm(self) -> bool:
        self.is_armed = True
        return super().arm()

    def disarm(self) -> bool:
        self.is_armed = False
        self.is_gone |= self.is_closing
        self._check()
        return super().disarm()


class Rig:
    """An exchange with one broker, moved by hand."""

    def __init__(self) -> None:
        self.accumulator = Accumulator("test", (7, 0), BatchWriter(Codec.NONE), 10_000)
        self.accumulator.learn("t", [NODE], 10_000)
        self.exchange = Exchange(self.accumulator, SYSTEM_CLOCK)
        self.channel, self.shard = Polled(), FakeShard()
        self.exchange.adopt(NODE, self.channel)
        self.exchange.use_adopted()

    def send(self) -> Parcel:
        self.exchange._singles += 1
        parcel = closed([(b"a", 0)])
        self.accumulator.add(parcel)
        self.exchange.drain(0)
        return parcel

    def deliver(self) -> None:
        answer = self.shard.answer(self.channel.sent.popleft(), append=True)
        self.channel.received.append(answer)

    def fall_asleep(self, *, is_asked: bool = False) -> int:
        return self.exchange.fall_asleep(LONG_MS, is_asked=is_asked)

    def wake_up(self) -> None:
        self.exchange.is_napping = False
        self.exchange.settle(self.exchange.wake_up())

    @property
    def is_woken(self) -> bool:
        return bool(wait_readable([self.exchange._wake.fileno()], 0))


@contextmanager
def opened() -> Iterator[Rig]:
    made = Rig()
    yield made
    os.close(made.channel.descriptor)
    made.exchange.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    with opened() as made:
        yield made


def test_a_sender_without_waiters_naps_and_does_not_listen(rig: Rig) -> None:
    parcel = rig.send()
    assert rig.fall_asleep() == NAP_MS
    assert rig.exchange.is_napping
    assert not rig.channel.is_armed
    rig.deliver()
    assert not parcel.is_resolved()
    rig.wake_up()
    assert parcel.is_resolved()
    assert rig.fall_asleep() == LONG_MS  # Nothing was sent meanwhile.
    assert rig.channel.is_armed


@pytest.mark.parametrize("who", ["a thread", "a callback", "a record", "a socket", "a parcel"])
def test_a_sender_with_a_waiter_listens(rig: Rig, who: str) -> None:
    parcel = rig.send()
    if who == "a callback":
        parcel.call_when_done(0, lambda: None)
    elif who == "a record":
        rig.send()  # It waits until the broker knows us.
    elif who == "a socket":
        rig.channel.is_quiet = False
    elif who == "a parcel":
        rig.exchange._parcels += 1
    assert rig.fall_asleep(is_asked=who == "a thread") == LONG_MS
    assert not rig.exchange.is_napping
    assert rig.channel.is_armed


def test_a_channel_that_is_found_to_be_gone_on_waking_is_given_up(rig: Rig) -> None:
    parcel = rig.send()
    rig.channel.is_closing = True
    rig.fall_asleep()
    rig.wake_up()
    rig.exchange.drop_dead_channels(0)
    assert dict(rig.exchange._by_node) == {}
    assert not parcel.is_resolved()
    assert rig.exchange.missing() == {NODE}


def test_poll_answers_takes_the_answers_that_arrived(rig: Rig) -> None:
    parcel = rig.send()
    rig.fall_asleep()
    rig.exchange.poll_answers()
    assert not parcel.is_resolved()
    rig.deliver()
    rig.exchange.poll_answers()
    assert parcel.is_resolved()
    assert not rig.is_woken


def test_enabling_wakeups_arms_the_channels(rig: Rig) -> None:
    rig.send()
    rig.fall_asleep()
    rig.exchange.enable_wakeups()
    assert rig.channel.is_armed
    assert not rig.exchange.is_napping
    assert not rig.is_woken


def test_an_interrupt_while_enabling_wakeups_leaves_the_sender_unlistening(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    parcel = rig.send()
    rig.fall_asleep()

    def interrupt() -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(rig.channel, "arm", interrupt)
    with pytest.raises(KeyboardInterrupt):
        rig.exchange.enable_wakeups()
    rig.deliver()
    rig.exchange.poll_answers()
    assert parcel.is_resolved()


def test_an_interrupted_take_of_answers_loses_the_channel_and_its_batches_are_resent() -> None:
    codes = code_of(Exchange.poll_answers, Channels.answers, Exchange.settle, FakeChannel.answers)
    is_there, number, again = True, 0, 0
    while is_there:
        with opened() as rig:
            parcel = rig.send()
            rig.fall_asleep()
            rig.deliver()
            is_there = is_interrupted(rig.exchange.poll_answers, codes, number)
            rig.exchange.poll_answers()  # By another thread: this hides nothing of the first.
            rig.wake_up()
            rig.exchange.drop_dead_channels(0)
            assert bool(rig.exchange._by_node) is not is_there
            assert parcel.is_resolved() is not rig.accumulator.queues.has_ready()
            again += rig.accumulator.queues.has_ready()
            number += 1
    assert number > again > 3


def test_enabling_wakeups_after_an_answer_arrived_wakes_the_thread(rig: Rig) -> None:
    rig.send()
    rig.fall_asleep()
    rig.deliver()
    rig.exchange.enable_wakeups()
    assert rig.is_woken


def test_while_the_thread_listens_answers_are_its_own(rig: Rig) -> None:
    parcel = rig.send()
    rig.fall_asleep(is_asked=True)
    rig.deliver()
    rig.exchange.poll_answers()
    rig.exchange.enable_wakeups()
    assert not parcel.is_resolved()
    assert not rig.is_woken


def test_an_answer_is_not_slept_over(rig: Rig) -> None:
    rig.send()
    rig.deliver()
    assert rig.fall_asleep(is_asked=True) == 0


def test_poll_answers_on_a_lost_channel_wakes_the_thread_which_drops_it(rig: Rig) -> None:
    parcel = rig.send()
    rig.fall_asleep()
    rig.channel.is_gone = True
    rig.exchange.poll_answers()
    assert rig.is_woken
    assert rig.accumulator.lost == {NODE}
    rig.exchange.drop_dead_channels(0)
    assert dict(rig.exchange._by_node) == {}
    assert rig.accumulator.lost == set()
    assert not parcel.is_resolved()
    assert rig.exchange.missing() == {NODE}


def test_a_broker_that_is_silent_is_mourned(rig: Rig) -> None:
    rig.send()
    rig.exchange.drop_dead_channels(ANSWER_MS_MAX)
    assert dict(rig.exchange._by_node) == {NODE: rig.channel}
    rig.exchange.drop_dead_channels(ANSWER_MS_MAX + 1)
    assert dict(rig.exchange._by_node) == {}
    assert rig.channel.is_gone


def test_it_sleeps_until_it_is_woken_or_rung(rig: Rig) -> None:
    rig.exchange.sleep(1)
    rig.exchange.wake()
    rig.exchange.sleep(LONG_MS)
    rig.wake_up()
    assert not rig.is_woken
    os.eventfd_write(rig.channel.descriptor, 1)
    rig.exchange.sleep(LONG_MS)


def test_sleep_returns_when_a_channel_was_closed(rig: Rig) -> None:
    os.close(rig.channel.descriptor)
    rig.channel.descriptor = -1
    rig.exchange.sleep(LONG_MS)
    rig.channel.descriptor = os.eventfd(0)


def test_the_exchange_must_push_while_a_socket_has_unsent_bytes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not rig.exchange.must_push()
    monkeypatch.setattr(rig.channel, "events", lambda: select.POLLIN | select.POLLOUT)
    assert rig.exchange.must_push()


def test_a_fork_does_not_take_the_parents_answers() -> None:
    rig = Rig()
    parcel = rig.send()
    rig.fall_asleep()
    rig.deliver()
    rig.exchange.forget()
    rig.exchange.poll_answers()
    rig.exchange.enable_wakeups()
    assert not parcel.is_resolved()
    os.close(rig.channel.descriptor)
