"""A process that uploads and is killed in the middle."""

import sys
from collections.abc import Callable
from pathlib import Path

from smq.testing.processes import Child

SECONDS_MAX = 120.0  # Until it is in the middle: it may compile kernels before.
# From the part after the last one that may be sent, it hangs.
HANGS = """
import sys, threading
from smq.filer.s3_uploads import Uploads
parts, send = int(sys.argv.pop(1)), Uploads.send
def send_some(uploads, upload, number, data):
    if number > parts:
        threading.Event().wait()
    return send(uploads, upload, number, data)
Uploads.send = send_some
"""


def upload_and_be_killed(
    program: str, arguments: list[str], directory: Path, parts: int, are_sent: Callable[[], bool]
) -> None:
    """Run a program that uploads; kill it when so many parts `are_sent`, which are all it sends."""
    command = [sys.executable, "-c", HANGS + program, str(parts), *arguments]
    child = Child.start(command, directory / "killed.log")
    try:
        child.wait_ready(are_sent, SECONDS_MAX)
    finally:
        child.kill()
