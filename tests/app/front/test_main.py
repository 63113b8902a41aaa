"""The front as the supervisor imports it; the supervisor's tests have it as a process."""

import subprocess
import sys


def test_the_libraries_of_the_front_and_of_s3_are_not_imported_before_the_fork() -> None:
    program = (
        "import sys, smq.app.supervisor.composition\n"
        "late = {'asyncio', 'starlette', 'uvicorn', 'anyio', 'obstore', 'botocore'}\n"
        "print(late & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
