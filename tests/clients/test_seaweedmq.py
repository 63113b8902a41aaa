"""SeaweedMQ's Go module: what it says of its API is what tests/agent/seaweedmq.txt has."""

import subprocess

import pytest

from tests.agent.seaweedmq import RECORDED
from tests.clients import toolchain

pytestmark = [pytest.mark.clients, pytest.mark.slow]


def test_the_recorded_descriptors_are_those_of_its_go_module() -> None:
    program = toolchain.seaweedmq("descriptors")
    said = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == RECORDED.read_text()
