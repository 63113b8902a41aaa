"""How much memory an action takes, measured in a process of its own."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

MiB = 1024 * 1024


def peak_bytes(action: Callable[[], object]) -> int:
    """By how much the resident memory of a forked process grows at most during an action."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)  # A child that hangs ends, and has written nothing.
        try:
            Path("/proc/self/clear_refs").write_text("5")  # The peak begins here (proc(5)).
            before = _peak()
            action()
            os.write(writer, b"%d" % (_peak() - before))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read()
    os.waitpid(pid, 0)
    assert said, "the action failed"
    return int(said)


def _peak() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
