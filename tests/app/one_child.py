"""A process of the broker's, forked by a test."""

import os
import signal


class OneChild:
    """At most one process at a time; `pid` is 0 while there is none."""

    pid = 0

    def wait_exit(self) -> int:
        """The exit code, minus the signal if one killed it."""
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert self.wait_exit() == -signal.SIGKILL
