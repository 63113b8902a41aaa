"""The channels of a producer, by broker."""

from collections.abc import Mapping
from contextlib import suppress

from smq.client.errors import ChannelGone
from smq.client.producing.channel.channel import Channel
from smq.client.wait import WRITABLE

NodeAnswers = tuple[int, list[bytes] | ChannelGone]
"""The answer of a broker, or the end of its channel."""


class Channels:
    """New channels are adopted, and open once the thread that polls them `use`s them."""

    def __init__(self) -> None:
        self._open: dict[int, Channel] = {}
        self._adopted: dict[int, Channel] = {}

    @property
    def by_node(self) -> Mapping[int, Channel]:
        """The open channels; the mapping follows all changes."""
        return self._open

    def __contains__(self, node_id: int) -> bool:
        """Whether a broker has a channel, also one that is not open yet."""
        return node_id in self._open or node_id in self._adopted

    def adopt(self, node_id: int, channel: Channel) -> None:
        """Take a new channel."""
        self._adopted[node_id] = channel

    def use_adopted(self) -> None:
        """By the thread that polls: the adopted channels are open from now on."""
        self._open |= self._adopted
        self._adopted.clear()

    def remove(self, node_id: int) -> None:
        """Close a broker's channel, if it is open."""
        channel = self._open.pop(node_id, None)
        if channel is not None:
            channel.close()

    def must_push(self) -> bool:
        """Whether a socket has not taken all written bytes."""
        for channel in self._open.values():  # noqa: SIM110  (Each record asks: `any` is slow.)
            if channel.events() & WRITABLE:
                return True
        return False

    def answers(self) -> list[NodeAnswers]:
        """Take the answers that have arrived."""
        found: list[NodeAnswers] = []
        for node_id, channel in self._open.items():
            try:
                found.append((node_id, channel.answers()))
            except ChannelGone as reason:
                found.append((node_id, reason))
        return found

    # --- polling ---------------------------------------------------------------------------------

    def are_quiet(self) -> bool:
        """Whether no answer wakes the thread that polls, unless `arm` was called."""
        return all(each.is_quiet for each in self._open.values())

    def arm(self) -> bool:
        """Have answers wake the thread that polls; False: there are some already."""
        is_quiet = True
        for channel in self._open.values():
            is_quiet &= channel.arm()
        return is_quiet

    def disarm(self) -> None:
        """The thread is awake."""
        for channel in self._open.values():
            with suppress(ChannelGone):  # `answers` reports it.
                channel.disarm()

    def watch(self, watched: dict[int, int]) -> bool:
        """Add all to what `ready` waits for; False: one is gone."""
        for channel in list(self._open.values()):
            fd = channel.fileno()
            if fd < 0:  # Another thread found it closed.
                return False
            watched[fd] = channel.events()
        return True

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close all."""
        self.use_adopted()
        for channel in self._open.values():
            channel.close()

    def forget(self) -> None:
        """In a forked child: close the copies; the parent's channels stay open."""
        self.use_adopted()
        for channel in self._open.values():
            channel.forget()
