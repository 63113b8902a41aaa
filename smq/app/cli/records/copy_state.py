"""The file that makes a copy resumable: corresponding offsets of both topics, by partition.

    {"version": 1, "source": NAME, "destination": NAME, "partitions": {"0": [OFFSET, OFFSET]}}

An old pair is as valid as a new one as long as only the copy writes to the destination: everything
above the pair was copied in the source's order. So the file need not be synced.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from smq.app.cli.client import refusal

VERSION = 1

Pairs = dict[int, tuple[int, int]]
"""Offsets of source and destination, by partition."""


def read_state(path: Path, source: str, destination: str) -> Pairs:
    """The pairs in a file; none if it does not exist. Refuses the file of a different copy."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise refusal(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise refusal(f"{path} is not the state of a copy: {error}") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise refusal(f"{path} is not the state of a copy by this version")
    if (found.get("source"), found.get("destination")) != (source, destination):
        raise refusal(f"{path} is the state of another copy: {found.get('source')}")
    try:
        return {int(number): (int(s), int(d)) for number, (s, d) in found["partitions"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise refusal(f"{path} is damaged; remove it to start over") from error


def write_state(
    path: Path, source: str, destination: str, pairs: Mapping[int, tuple[int, int]]
) -> None:
    """Replace the file atomically."""
    partitions = {str(number): list(pair) for number, pair in pairs.items()}
    state = {
        "version": VERSION,
        "source": source,
        "destination": destination,
        "partitions": partitions,
    }
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(json.dumps(state) + "\n")
        new.replace(path)
    except OSError as error:
        raise refusal(f"{path} cannot be written: {error.strerror}") from error
