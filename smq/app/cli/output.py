"""Standard output of the verbs, and how they end when nobody takes it.

A pipe whose reader has enough is no failure; a full disk is, and is told in a sentence.
"""

import os
import sys

from smq.app.cli.client import refusal


def say(line: str) -> None:
    """Write a line of text."""
    write(line.encode() + b"\n")


def write(data: bytes, *, at_once: bool = True) -> None:
    """Write bytes; if not at once, then when there are many, or `flush`. May end the verb."""
    if sys.stdout is None:  # How Python says that it was closed.
        raise refusal("there is no standard output to write to")
    output = sys.stdout.buffer
    try:
        output.write(data)
        if at_once:
            output.flush()
    except BrokenPipeError:
        _write_no_more()
        raise SystemExit(0) from None
    except OSError as error:
        _write_no_more()
        raise refusal(f"standard output cannot be written: {error.strerror}") from error


def flush() -> None:
    """Have everything written that was not to be at once."""
    write(b"")


def _write_no_more() -> None:
    # Python flushes at its end what is left, and would fail once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
