"""The demo, told in full: it fails by itself when a number disagrees."""

import subprocess
import sys
from pathlib import Path

import pytest

STORY_SECONDS_MAX = 120  # What is promised; it takes less than one minute.


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_every_number_of_the_story_agrees(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=STORY_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every number agrees" in done.stdout
    assert "0 lost" in done.stdout
