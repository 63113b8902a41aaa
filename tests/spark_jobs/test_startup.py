"""What Spark says whenever it starts is not passed on; everything else is."""

import os
import subprocess
import sys

import pytest

from spark_jobs.startup import ROUTINE, quiet_start
from tests.spark_jobs.conftest import wait_for

SAYS = """
import sys
for line in sys.argv[1:]:
    print(line, file=sys.stderr)
"""


def test_only_routine_lines_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    lines = [f"26/01/01 00:00:00 {words.decode()} and so on" for words in ROUTINE]
    with quiet_start():
        late = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read(); sys.stderr.write('late\\n')"],
            stdin=subprocess.PIPE,
        )
        subprocess.run([sys.executable, "-c", SAYS, "an error", *lines, "another"], check=True)
    os.write(2, b"after\n")
    late.communicate(b"")
    said = ""

    def is_said() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "late" in said and "another" in said

    wait_for(is_said)
    assert sorted(said.split("\n")[:-1]) == ["after", "an error", "another", "late"]
