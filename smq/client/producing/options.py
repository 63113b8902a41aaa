"""How a producer behaves; Client.producer documents each option."""

from typing import NamedTuple

from smq.wire.compression import Codec


class Options(NamedTuple):
    """The caller checks the values."""

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
