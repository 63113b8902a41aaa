"""The demo's broker: `smq serve` as a child, with the demo's kills."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from smq.app.process.program import command, importing
from smq.app.process.status import Status, read_status

STOP_S_MAX = 6.0


class Broker:
    """One shard on a free port, with its own data directory. `say` gets its news."""

    def __init__(self, data_dir: Path, say: Callable[[str], None]) -> None:
        self.data_dir = data_dir
        serve = command("smq.cli.main", "serve")
        options = ["--data-dir", str(data_dir), "--port", "0", "--shards", "1"]
        self._process = subprocess.Popen(  # noqa: S603  (ourselves)
            [*serve, *options, "--group-initial-rebalance-delay-ms", "500"],
            env=importing(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("ready "):
                self.bootstrap = line.split()[1]
                return
            if "kernels" in line:  # Loading takes a while, once per machine.
                say(line.rstrip())
        raise SystemExit(f"smq serve ended, with exit code {self._process.wait()}")

    def status(self) -> Status:
        """The supervisor's status."""
        found = read_status(self.data_dir)
        if found is None:
            raise SystemExit("the broker is gone")
        return found[0]

    def kill(self, name: str) -> int:
        """SIGKILL one of its processes; returns the pid that died."""
        pid = self.status().processes[name].pid
        os.kill(pid, signal.SIGKILL)
        return pid

    def stop(self) -> None:
        """Stop it as a user would."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(STOP_S_MAX)


def run_module(log: Path, module: str, *arguments: str) -> str:
    """Run one of our programs to its end; returns its stdout. Its stderr goes to a log."""
    with log.open("w") as murmurs:
        done = subprocess.run(  # noqa: S603  (ourselves)
            command(module, *arguments),
            env=importing(),
            stdout=subprocess.PIPE,
            stderr=murmurs,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{module} ended with exit code {done.returncode}: {log.read_text()}")
    return done.stdout
