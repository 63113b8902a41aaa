"""A producer's channels: sends over them, takes answers, and decides which thread these wake.

An ack that no thread waits for wakes none: waking a thread for each of many single records would
cost more than sending them. So the sender's thread may nap for NAP_MS, during which answers do not
wake it. The next `send`, or a call that asks for a result, takes the answers that arrived by
then. A thread that waits for an answer is woken by it.
"""

import logging

from smq.client.clock import Clock
from smq.client.errors import ChannelGone
from smq.client.producing.batching.accumulator import Accumulator
from smq.client.producing.channel.channel import Channel
from smq.client.producing.channel.channels import Channels, NodeAnswers
from smq.client.producing.delivery.single_record import SingleRecord
from smq.client.wait import READABLE, ready
from smq.client.wake import Wake
from smq.model.errors import PeerError

NAP_MS = 10  # How late acks are taken that no thread waits for.

logger = logging.getLogger(__name__)


class Exchange:
    """All methods but `sleep`, `wake` and `wake_up` require the producer's lock.

    is_napping  the thread sleeps, and answers do not wake it
    is_closed   the thread must not be woken any more
    """

    def __init__(self, accumulator: Accumulator, clock: Clock) -> None:
        self.is_napping = self.is_closed = False
        self._accumulator = accumulator
        self._clock = clock
        self._channels = Channels()
        self._by_node, self.must_push = self._channels.by_node, self._channels.must_push
        self._singles = self._parcels = 0  # How many were sent since the thread fell asleep.
        self._is_cut_short = False  # Whether an interrupt may have torn the taking of answers.
        self._wake = Wake()

    # --- sending ---------------------------------------------------------------------------------

    def send_single(self, single: SingleRecord, now_ms: int) -> bool:
        """Send a record unless another must be sent before it; returns whether it did."""
        if not self._accumulator.send_single(single, self._by_node, now_ms):
            return False
        self._singles += 1
        return True

    def drain(self, now_ms: int, *, parcels: int = 0) -> None:
        """Send everything that may go now, `parcels` new ones included."""
        self._parcels += parcels
        self._accumulator.drain(self._by_node, now_ms)

    def needs_thread(self) -> bool:
        """Whether only the thread can continue: close or push a channel, send what has no room."""
        accumulator = self._accumulator
        return (
            bool(accumulator.lost) or accumulator.queues.has_ready() or self._channels.must_push()
        )

    # --- channels --------------------------------------------------------------------------------

    def missing(self) -> set[int]:
        """Brokers to which batches must be sent and that have no channel."""
        wanted = self._accumulator.queues.leaders_wanted()
        return wanted and {node_id for node_id in wanted if node_id not in self._channels}

    def adopt(self, node_id: int, channel: Channel) -> None:
        """Take a new channel, which the thread will begin to use."""
        if self.is_closed:
            channel.close()
        else:
            self._channels.adopt(node_id, channel)

    def use_adopted(self) -> None:
        """By the thread: use the channels that were adopted."""
        self._channels.use_adopted()

    def drop_dead_channels(self, now_ms: int) -> None:
        """Close the channels that are gone, whose broker is silent, or whose answers may be lost.

        Requests that have no answer are sent again.
        """
        accumulator = self._accumulator
        dead = accumulator.take_lost(now_ms)
        if self._is_cut_short:
            dead |= self._by_node.keys()
            self._is_cut_short = False
        for node_id in dead:
            self._channels.remove(node_id)
            accumulator.channel_lost(node_id, now_ms)

    # --- answers ---------------------------------------------------------------------------------

    def poll_answers(self) -> None:
        """Take the answers that have arrived, if the thread naps."""
        if self.is_napping and not self._is_cut_short:
            self._is_cut_short = True
            self.settle(self._channels.answers())
            self._is_cut_short = False
            if self._accumulator.lost:
                self.wake()

    def enable_wakeups(self) -> None:
        """Have the next answer wake the thread."""
        if self.is_napping:
            # First: an interrupt between the two leaves a nap, not a deaf thread.
            is_quiet = self._channels.arm()
            self.is_napping = False
            if not is_quiet:
                self.wake()

    def settle(self, found: list[NodeAnswers]) -> None:
        """Resolve what was answered, and push."""
        now_ms = self._clock.monotonic_ms()
        for node_id, answers in found:
            try:
                if isinstance(answers, ChannelGone):
                    raise answers
                self._by_node[node_id].push()
                for answer in answers:
                    self._accumulator.answered(node_id, answer, now_ms)
            except (ChannelGone, PeerError) as reason:
                logger.info("the channel to broker %s is lost: %s", node_id, reason)
                self._accumulator.lost.add(node_id)

    # --- the thread's sleep ----------------------------------------------------------------------

    def wake(self) -> None:
        """Have the thread do its round."""
        self._wake.wake()

    def fall_asleep(self, sleep_ms: int, *, is_asked: bool) -> int:
        """For how long to sleep, `sleep_ms` at most; 0: there are answers already.

        It is a nap if only single records were sent, and no thread waits for their results.
        """
        has_sent_singles = self._singles > 0 and not self._parcels
        self._singles = self._parcels = 0
        self.is_napping = has_sent_singles and not is_asked and self._may_nap()
        if self.is_napping:
            return min(sleep_ms, NAP_MS)
        return sleep_ms if self._channels.arm() else 0

    def _may_nap(self) -> bool:
        """Whether the next answer causes no work: no batch follows it, and no callback."""
        accumulator = self._accumulator
        if accumulator.queues.has_ready() or not self._channels.are_quiet():
            return False
        return not accumulator.pending.has_callbacks()

    def end_nap(self) -> None:
        """The thread is awake, and takes the answers itself."""
        self.is_napping = False

    def sleep(self, sleep_ms: int) -> None:
        """Sleep until there is something to do, or for this long; without the lock."""
        watched = {self._wake.fileno(): READABLE}
        if self._channels.watch(watched):
            ready(watched, sleep_ms / 1000)

    def wake_up(self) -> list[NodeAnswers]:
        """The answers that have arrived, for `settle`. Without the lock, once the nap has ended."""
        assert not self.is_napping, "another thread may take answers"
        self._wake.clear()
        self._channels.disarm()
        return self._channels.answers()

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the channels. The results of requests in flight are not learnt."""
        self.is_napping, self.is_closed = False, True
        self._channels.close()
        self._wake.close()

    def forget(self) -> None:
        """In a forked child: close the copies; the parent's channels stay open."""
        self.is_napping, self.is_closed = False, True  # No thread may take answers there.
        self._channels.forget()
        self._wake.close()
