"""How busy a shard is, by what it says of its processor time. No IO."""

HIGH_SHARE = 0.5  # Of a core.
SPAN_MS = 400  # A share of a shorter time says little.
KNOWN_MS = 3000  # A shard that has said nothing for so long is down or stopped, and wants no core.


class ShardLoad:
    """The last share of a core that one shard has used."""

    def __init__(self) -> None:
        self._was_high = False
        self._cpu_ms = self._at_ms = 0

    def is_high(self, now_ms: int) -> bool:
        """Whether it uses half a core or more, by what it said just now."""
        return self._was_high and now_ms - self._at_ms < KNOWN_MS

    def see(self, cpu_ms: int, now_ms: int) -> None:
        """Note what it had used at some time. One that was started again has used less."""
        passed_ms = now_ms - self._at_ms
        if passed_ms >= SPAN_MS:
            used_ms = cpu_ms - self._cpu_ms
            self._was_high = self._at_ms > 0 and used_ms >= passed_ms * HIGH_SHARE
            self._cpu_ms, self._at_ms = cpu_ms, now_ms
