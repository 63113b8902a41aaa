"""docs/filer.md: its commands run, and answer as it says."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.testing.smq_broker import SmqBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

PAGE = Path(__file__).parents[2] / "docs" / "filer.md"
ADDRESS = "127.0.0.1:8080"


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command, and what it prints."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for step in block.split("$ ")[1:]:
            command, _, printed = step.partition("\n")
            yield command, printed


def test_every_example_does_what_it_says(tmp_path: Path) -> None:
    examples = [*commands(PAGE.read_text())]
    assert len(examples) > 10
    settings = {"http.port": "0", "filer.reserve.bytes": "0"}
    with SmqBroker(tmp_path, settings) as broker:
        for command, printed in examples:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command.replace(ADDRESS, broker.status().http)],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                check=False,
            )
            pattern = ".*".join(map(re.escape, printed.strip().split("…")))
            assert re.fullmatch(pattern, done.stdout.strip(), re.DOTALL), (command, done)
            assert done.returncode == 0, (command, done)
