"""The quotas of a shard's clients: which clients have some, and how long each must wait.

Produced and fetched bytes are the bytes of requests and answers on the socket; request time is this
process's time: 100 % is one shard that does nothing else. Clients that share a quota share a bucket
on each node, as Kafka counts on each broker.
"""

from smq.model.buckets import Buckets
from smq.model.client_quotas import (
    CONSUME,
    PRODUCE,
    REQUEST_TIME,
    Limit,
    Quotas,
    connection_limit_of,
    limit_of,
)

THROTTLE_TIME_MS_MAX = 1000  # For request time: Kafka's own bound.
KNOWN_MAX = 10_000  # Clients with cached limits.
NS_A_PERCENT = 10_000_000  # Of a second.


class ClientLimits:
    """The quotas of a user's clients with one id. Each method returns how long to wait, in ms."""

    def __init__(self, buckets: Buckets, limits: dict[str, Limit]) -> None:
        self._buckets, self._limits = buckets, limits

    def produced(self, byte_count: int, now_ms: int) -> int:
        """Charge received requests of this many bytes."""
        return self._use(PRODUCE, byte_count, now_ms)

    def fetched(self, byte_count: int, now_ms: int) -> int:
        """Charge an answer of this many bytes."""
        return self._use(CONSUME, byte_count, now_ms)

    def worked(self, spent_ns: int, now_ms: int) -> int:
        """Charge the time of a request."""
        return min(THROTTLE_TIME_MS_MAX, self._use(REQUEST_TIME, spent_ns / NS_A_PERCENT, now_ms))

    def _use(self, name: str, amount: float, now_ms: int) -> int:
        limit = self._limits.get(name)
        if limit is None:
            return 0
        return self._buckets.use(limit.shared, limit.value, amount, now_ms)


class ClientQuotas:
    """All current quotas. `version` grows when they change."""

    def __init__(self) -> None:
        self._quotas: Quotas = {}
        self._buckets = Buckets()
        self._known: dict[tuple[str, str], ClientLimits | None] = {}
        self.version = 0

    @property
    def is_on(self) -> bool:
        """Whether there are any."""
        return bool(self._quotas)

    def take(self, quotas: Quotas) -> None:
        """Use other quotas from now on. Debts stay."""
        if quotas != self._quotas:
            self._quotas = quotas
            self._known.clear()
            self.version += 1

    def of(self, user: str, client_id: str) -> ClientLimits | None:
        """The limits of a user's client; None: it has none."""
        client = user, client_id
        if client not in self._known:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            names = PRODUCE, CONSUME, REQUEST_TIME
            found = {name: limit_of(self._quotas, name, *client) for name in names}
            limits = {name: limit for name, limit in found.items() if limit is not None}
            self._known[client] = ClientLimits(self._buckets, limits) if limits else None
        return self._known[client]

    def connected(self, ip: str, now_ms: int) -> int:
        """Charge an address for one more connection; returns how long it must wait."""
        rate = connection_limit_of(self._quotas, ip)
        if rate is None:
            return 0
        return self._buckets.use(("connection", ip), rate, 1, now_ms)
