"""The front as the supervisor sees it: there when a port is given, and nothing otherwise."""

import subprocess
import sys
from pathlib import Path

from tests.app.fake_broker import running


def test_without_a_port_there_is_no_front_and_its_libraries_are_nowhere(tmp_path: Path) -> None:
    program = (
        "import sys, smq.app.composition\n"
        "print({'asyncio', 'starlette', 'uvicorn', 'anyio', 'obstore'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
    with running(tmp_path, 1) as broker:
        assert "front" not in broker.status().processes
        assert broker.status().http == ""
