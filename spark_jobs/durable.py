"""A small JSON file that describes a job's directory or its progress.

It is replaced atomically, and durable on return.
"""

import json
import os
from pathlib import Path

from smq.tables.plan import Unreadable


def save(path: Path, value: object) -> None:
    """Replace the file. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def load(path: Path) -> dict[str, object] | None:
    """The file's content; None without a file. Raises Unreadable."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise Unreadable(f"{path} is not the progress of a job")
    return found


def check_is_new(directory: Path) -> None:
    """Raises Unreadable if the directory has something."""
    if directory.exists() and any(directory.iterdir()):
        raise Unreadable(f"{directory} is not a table of this job; name a new directory")


def claim(path: Path, facts: dict[str, object]) -> None:
    """Record in a table's directory what the table is made of; later runs must match.

    Raises Unreadable if they differ, or if the directory has something else.
    """
    found, directory = load(path), path.parent
    if found is None:
        check_is_new(directory)
        directory.mkdir(parents=True, exist_ok=True)
        save(path, facts)
    elif found != facts:
        others = sorted(name for name in {*found, *facts} if found.get(name) != facts.get(name))
        raise Unreadable(
            f"{directory} was made with another {' and '.join(others)}; name a new directory"
        )
