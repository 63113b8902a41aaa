"""Untrusted regular expressions, matched in bounded time (KIP-1152).

RE2, whose Java port Kafka uses too, takes time proportional to the text and to the compiled
pattern, and refuses what needs more: back-references, look-around. The size of a compiled pattern
is bounded here.
"""

from smq.model.errors import BrokerError, ErrorCode

PROGRAM_MAX = 300  # Steps of a compiled pattern: about as many letters. A microsecond a letter.
MEMORY_MAX = 1024 * 1024


class Pattern:
    """A regular expression that is matched against whole names."""

    def __init__(self, text: str) -> None:
        """Raises BrokerError if the expression is invalid or too large."""
        import re2  # noqa: PLC0415  (a library that is needed seldom)

        options = re2.Options()
        options.max_mem, options.log_errors = MEMORY_MAX, False
        try:
            self._compiled = re2.compile(text, options=options)
        except re2.error as reason:
            raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION) from reason
        self.size: int = self._compiled.programsize
        if self.size > PROGRAM_MAX:
            raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION)

    def matches(self, name: str) -> bool:
        """Whether a whole name matches. Takes time proportional to `size` and the name."""
        return self._compiled.fullmatch(name) is not None

    def groups(self, name: str) -> tuple[str | None, ...] | None:
        """A whole name that matches, and the parts that its groups have found; None: no match."""
        found = self._compiled.fullmatch(name)
        return None if found is None else (name, *found.groups())
