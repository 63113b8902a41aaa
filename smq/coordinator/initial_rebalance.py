"""The first rebalance of an empty group: extended while new members join (Kafka's rule)."""

from dataclasses import dataclass


@dataclass(slots=True)
class InitialRebalance:
    """`delay_ms` is the current wait, `remaining_ms` the most it may wait after that."""

    delay_ms: int
    remaining_ms: int
    member_added: bool = False

    @classmethod
    def begin(cls, delay_ms: int, rebalance_timeout_ms: int) -> "InitialRebalance":
        """Wait for the delay first; new members extend that up to the rebalance timeout."""
        return cls(delay_ms, max(rebalance_timeout_ms - delay_ms, 0))

    def extended(self, delay_ms: int) -> "InitialRebalance | None":
        """The wait that follows the delay; None: the rebalance completes."""
        assert self.delay_ms >= 0
        assert self.remaining_ms >= 0
        if not self.member_added or not self.remaining_ms:
            return None
        remaining_ms = max(self.remaining_ms - self.delay_ms, 0)
        return InitialRebalance(min(delay_ms, self.remaining_ms), remaining_ms)
