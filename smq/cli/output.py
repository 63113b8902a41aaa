"""Standard output of the verbs. They exit when it cannot be written.

A closed pipe is not a failure. A full disk is, and is reported in a sentence.
"""

import os
import sys
from enum import StrEnum

from smq.cli.client import refusal
from smq.model.printable import printable


class Format(StrEnum):
    """How `smq sql` writes rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def say(line: str) -> None:
    """Write a line of text; what would act on a terminal is escaped."""
    write(printable(line).encode() + b"\n")


def say_lines(text: str) -> None:
    """Write several lines."""
    for line in text.split("\n"):
        say(line)


def write(data: bytes, *, at_once: bool = True) -> None:
    """Write bytes; unless `at_once`, buffer them until `flush` or a full buffer. May exit."""
    if sys.stdout is None:  # None: Python found it closed.
        raise refusal("there is no standard output to write to")
    output = sys.stdout.buffer
    if output.isatty():  # Records may hold what acts on a terminal; a file or pipe gets the bytes.
        data = printable(data.decode(errors="backslashreplace"), keep="\n\t").encode()
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
    """Write everything that is buffered."""
    write(b"")


def _write_no_more() -> None:
    # Python flushes the rest at exit, and would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
