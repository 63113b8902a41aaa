"""Runs the command `smq` as a user would."""

import subprocess
import sys

SMQ = [sys.executable, "-m", "smq.cli.main"]


def smq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SMQ, *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "200"} | environment,
    )
