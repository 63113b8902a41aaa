"""Channels that are useless now, until their owner closes them."""


class LostChannels(set[int]):
    """The brokers whose channel is gone, is too small, or may hold a partial request."""

    def __init__(self) -> None:
        super().__init__()
        self._request_bytes: dict[int, int] = {}

    def add_too_small(self, node_id: int, request_bytes: int) -> None:
        """A broker's channel can never take a request of this size."""
        self._request_bytes[node_id] = request_bytes
        self.add(node_id)

    def request_bytes(self, node_id: int) -> int:
        """The size of a request that the next channel to a broker must take at least."""
        return self._request_bytes.get(node_id, 0)

    def take(self) -> set[int]:
        """Take the brokers whose channels must be closed."""
        nodes = {*self}
        self.clear()
        return nodes
