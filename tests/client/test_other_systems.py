"""The SDK works over the wire without what only Linux has, and says what does not work.

A program on Linux that lacks the names which macOS or Windows lacks, or that takes its processor
for one the kernels do not know, talks to a broker in other processes.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.testing import broker
from smq.testing.smq_broker import SmqBroker

ROOT = Path(__file__).parent.parent.parent
COMPILE = {"NUMBA_OPT": "3"}  # Numba's default. This machine's library of kernels is Linux's.
RUN_S = 500  # Without compiled kernels, on a busy machine.


@pytest.fixture(scope="module")
def live() -> Iterator[SmqBroker]:
    with broker(http_port=0) as running:
        yield running


def run(system: str, address: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.client.other_system", system, address],
        cwd=ROOT,
        env=os.environ | COMPILE | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )


@pytest.mark.slow
@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_programs_use_the_wire_on(system: str, live: SmqBroker) -> None:
    done = run(system, live.bootstrap)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")


@pytest.mark.slow
def test_programs_use_the_wire_on_a_processor_that_kernels_do_not_know(
    live: SmqBroker, tmp_path: Path
) -> None:
    done = run("riscv64", live.bootstrap, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")


def test_a_big_endian_processor_is_refused() -> None:
    code = "import sys; sys.byteorder = 'big'; import smq"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("ImportError: SMQ's kernels need a little-endian processor.")
    assert "bootstrap.servers" in sentence
