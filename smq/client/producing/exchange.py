"""The channels of a producer: what comes back over them, and whom that wakes.

An ack that nobody waits for wakes nobody: a thread woken for each of many single records would cost
more than sending them. So the thread may sleep deaf, for NAP_MS; who sends next, or asks, hears
what has come by then, and who waits has the thread listen again.
"""

import logging
import os
import select
import time
from contextlib import suppress

from smq.client.errors import ChannelGone
from smq.client.producing.accumulator import Accumulator
from smq.client.producing.channel import Channel
from smq.model.errors import PeerError

NAP_MS = 10  # Until acks are taken that nobody waits for.

logger = logging.getLogger(__name__)


def monotonic_ms() -> int:
    """Milliseconds that only grow."""
    return time.monotonic_ns() // 1_000_000


Answers = tuple[int, list[bytes] | ChannelGone]
"""What a broker has answered, or that its channel is gone."""


class Exchange:
    """Channels by broker. All but `sleep`, `wake` and `wake_up` want the sender's lock.

    is_deaf             the thread sleeps, and no answer wakes it
    singles, parcels    how many were sent since it fell asleep
    is_closed           nobody is to wake it any more
    """

    def __init__(self, accumulator: Accumulator) -> None:
        self.channels: dict[int, Channel] = {}  # Only the thread adds and removes.
        self._adopted: dict[int, Channel] = {}
        self.is_deaf = self.is_closed = False
        self.accumulator = accumulator
        self.singles = self.parcels = 0
        self._is_broken_off = False  # Whether an interrupt came while somebody took answers.
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(self) -> None:
        """Have the thread do its round."""
        os.eventfd_write(self._wake_fd, 1)

    def missing(self) -> set[int]:
        """Brokers that something waits for and to which there is no channel."""
        return self.accumulator.leaders_wanted() - self.channels.keys() - self._adopted.keys()

    def adopt(self, node_id: int, channel: Channel) -> None:
        """Take a new channel, for the thread to begin with."""
        if self.is_closed:
            channel.close()
        else:
            self._adopted[node_id] = channel

    def begin_with_new(self) -> None:
        """By the thread: channels that were adopted are like the others now."""
        self.channels |= self._adopted
        self._adopted.clear()

    def must_push(self) -> bool:
        """Whether something was written that a socket has not taken."""
        return any(each.events() & select.POLLOUT for each in self.channels.values())

    def mourn(self, now_ms: int) -> None:
        """Close the channels that were found to be gone, or whose broker is silent.

        And those of which answers were taken, and perhaps not noted: what they owe is sent again.
        """
        accumulator = self.accumulator
        if self._is_broken_off:
            accumulator.gone |= self.channels.keys()
            self._is_broken_off = False
        gone, accumulator.gone = accumulator.gone | set(accumulator.silent(now_ms)), set()
        for node_id in gone:
            channel = self.channels.pop(node_id, None)
            if channel is not None:
                channel.close()
            accumulator.lost(node_id, now_ms)

    # --- answers ---------------------------------------------------------------------------------

    def hear(self) -> None:
        """Take the answers that have come, if the thread is deaf."""
        if self.is_deaf and not self._is_broken_off:
            self._is_broken_off = True
            self.settle(self._answers())
            self._is_broken_off = False
            if self.accumulator.gone:
                self.wake()

    def listen(self) -> None:
        """Have the thread wake at the next answer."""
        if self.is_deaf:
            is_quiet = self._arm()  # First: a thread that does not listen is not taken for one.
            self.is_deaf = False
            if not is_quiet:
                self.wake()

    def _arm(self) -> bool:
        """Have answers wake who polls; False: there are some already."""
        is_quiet = True
        for channel in self.channels.values():
            is_quiet &= channel.arm()
        return is_quiet

    def _answers(self) -> list[Answers]:
        found: list[Answers] = []
        for node_id, channel in self.channels.items():
            try:
                found.append((node_id, channel.answers()))
            except ChannelGone as reason:
                found.append((node_id, reason))
        return found

    def settle(self, found: list[Answers]) -> None:
        """Resolve what was answered, and push."""
        now_ms = monotonic_ms()
        for node_id, answers in found:
            try:
                if isinstance(answers, ChannelGone):
                    raise answers
                self.channels[node_id].push()
                for answer in answers:
                    self.accumulator.answered(node_id, answer, now_ms)
            except (ChannelGone, PeerError) as reason:
                logger.info("broker %s is gone: %s", node_id, reason)
                self.accumulator.gone.add(node_id)

    # --- the thread's sleep ----------------------------------------------------------------------

    def fall_asleep(self, sleep_ms: int, *, is_asked: bool) -> int:
        """How long to sleep, if that is for `sleep_ms` at most; 0: there is something already.

        Deaf for a moment, if single records are sent, nothing else, and nobody waits for any.
        """
        has_sent_singles = self.singles > 0 and not self.parcels
        self.singles = self.parcels = 0
        self.is_deaf = has_sent_singles and not is_asked and self._may_be_deaf()
        if self.is_deaf:
            return min(sleep_ms, NAP_MS)
        return sleep_ms if self._arm() else 0

    def _may_be_deaf(self) -> bool:
        """Whether nothing of what is on its way goes on, or calls back, with the next answer."""
        accumulator = self.accumulator
        if accumulator.has_waiting or not all(each.is_quiet for each in self.channels.values()):
            return False
        return not any(parcel.callbacks for parcel in accumulator.parcels)

    def sleep(self, sleep_ms: int) -> None:
        """Sleep until there is something, or for so long; without the lock."""
        poller = select.poll()
        poller.register(self._wake_fd, select.POLLIN)
        for channel in list(self.channels.values()):
            fd = channel.fileno()
            if fd < 0:  # Somebody who sent has found that nobody is there.
                return
            poller.register(fd, channel.events())
        poller.poll(sleep_ms)

    def wake_up(self) -> list[Answers]:
        """What has come; to be settled. Without the lock, once it is not deaf any more."""
        assert not self.is_deaf, "somebody else may take answers"
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)
        for channel in self.channels.values():
            with suppress(ChannelGone):  # `answers` says so too.
                channel.disarm()
        return self._answers()

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the channels; what is on its way is lost sight of."""
        self.begin_with_new()
        self.is_deaf, self.is_closed = False, True
        for channel in self.channels.values():
            channel.close()
        os.close(self._wake_fd)

    def forget(self) -> None:
        """In a forked child: let go of copies."""
        self.begin_with_new()
        self.is_deaf, self.is_closed = False, True  # Nobody is to take answers there.
        for channel in self.channels.values():
            channel.forget()
        os.close(self._wake_fd)
