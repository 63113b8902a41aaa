"""What the parts of a producer have in common: its options, and the objects that they work on."""

from typing import NamedTuple

from smq.client.clock import Clock
from smq.client.producing.batching.accumulator import Accumulator
from smq.client.producing.delivery.unreported import UnreportedFailures
from smq.client.producing.exchange import Exchange
from smq.client.producing.producer_state import ProducerState
from smq.client.producing.topics import SentTopics
from smq.wire.compression import Codec


class Options(NamedTuple):
    """`Client.producer` documents each, and checks the values."""

    client_id: str
    compression: Codec
    linger_ms: int
    batch_bytes: int
    buffer_bytes: int
    block_s: float
    delivery_timeout_s: float
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    @property
    def delivery_timeout_ms(self) -> int:
        """A record that is not acknowledged within this time fails."""
        return int(1000 * self.delivery_timeout_s)


class Parts(NamedTuple):
    """The lock of `state` guards the others, but for the options and the clock."""

    options: Options
    clock: Clock
    state: ProducerState
    accumulator: Accumulator
    exchange: Exchange
    topics: SentTopics
    unreported: UnreportedFailures
