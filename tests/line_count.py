"""Counts the lines that run: a bound on steps that does not depend on the machine."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Lines:
    """So many lines of Python have run."""

    count = 0

    def trace(self, _frame: object, event: str, _arg: object) -> object:
        """See sys.settrace."""
        self.count += event == "line"
        return self.trace


@contextmanager
def lines_counted() -> Iterator[Lines]:
    """Count those that run within the block."""
    lines, outer = Lines(), sys.gettrace()
    sys.settrace(lines.trace)  # type: ignore[arg-type]
    try:
        yield lines
    finally:
        sys.settrace(outer)
