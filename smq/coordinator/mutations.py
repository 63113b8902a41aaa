"""The quota on topic changes (KIP-599): partitions created and deleted per second.

A client without debt may make any change, which may put it into debt. Then newer versions are
refused (THROTTLING_QUOTA_EXCEEDED); older ones are carried out, and their clients must wait all the
same.
"""

from smq.model.buckets import Buckets
from smq.model.client_quotas import MUTATIONS, Quotas, limit_of
from smq.model.errors import BrokerError, ErrorCode

BURST_S = 10.0  # Kafka's eleven samples of a second: admits one topic of many partitions.


class Mutations:
    """The buckets of all clients. They are forgotten with the coordinator."""

    def __init__(self) -> None:
        self._buckets = Buckets(BURST_S)

    def of(
        self, quotas: Quotas, user: str, client_id: str | None, now_ms: int, *, strict: bool
    ) -> "Charge":
        """The charge of one request."""
        limit = limit_of(quotas, MUTATIONS, user, client_id or "")
        rate = None if limit is None else limit.value
        key = () if limit is None else limit.shared
        return Charge(self._buckets, key, rate, now_ms, strict=strict)


class Charge:
    """The charge of one request. `throttle_ms`: how long its client must wait."""

    def __init__(
        self,
        buckets: Buckets,
        key: tuple[str, ...],
        rate: float | None,
        now_ms: int,
        *,
        strict: bool,
    ) -> None:
        self._buckets, self._key, self._rate = buckets, key, rate
        self._now_ms, self._strict = now_ms, strict
        self.throttle_ms = 0

    @property
    def is_limited(self) -> bool:
        """Whether the client has a quota."""
        return self._rate is not None

    def take(self, partition_count: int) -> None:
        """Charge a change of `partition_count` partitions. Raises BrokerError if the client must
        wait first."""
        if self._rate is None:
            return
        owed_ms = self._buckets.use(self._key, self._rate, 0, self._now_ms)
        if owed_ms and self._strict:
            self.throttle_ms = max(self.throttle_ms, owed_ms)
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                "The throttling quota has been exceeded: try again after the throttle time.",
            )
        wait_ms = self._buckets.use(self._key, self._rate, partition_count, self._now_ms)
        self.throttle_ms = max(self.throttle_ms, wait_ms)
