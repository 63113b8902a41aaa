"""An S3 on this machine: moto's server, in a process of its own, with one bucket.

It can be suspended, killed, and restarted on the same port, like a remote S3 that goes away and
comes back; but its objects are in memory, so a restart begins with an empty bucket.
"""

import http.client
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smq.filer.s3 import S3Store
from smq.testing.processes import Child, free_port

BUCKET = "smq-test"
PROGRAM = "smq.testing.moto_process"
PART_SENT = re.compile(r'"PUT /[^"]*[?&]partNumber=(\d+)[^"]*" 200')
READY_SECONDS_MAX = 60.0
REGION = "us-east-1"
ENDPOINT = "AWS_ENDPOINT_URL"


class S3Server:
    """The server's process. It accepts any keys."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._output = directory / "s3.log"
        self._child: Child | None = None
        self.start()

    def start(self) -> None:
        """Serve an empty bucket."""
        command = [sys.executable, "-m", PROGRAM, "-H", "127.0.0.1", "-p", str(self.port)]
        self._child = Child.start(command, self._output)
        self._child.wait_ready(self._answers, READY_SECONDS_MAX)
        assert self._ask("PUT", f"/{BUCKET}") == 200

    def kill(self) -> None:
        """Kill it; its objects are lost."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def hang(self) -> None:
        """Suspend it: it accepts connections but answers nothing."""
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume it: it also answers the requests received meanwhile."""
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGCONT)

    def parts_sent(self) -> list[int]:
        """The numbers of the upload parts that it has received, in order."""
        return [int(number) for number in PART_SENT.findall(self._output.read_text())]

    def _answers(self) -> bool:
        try:
            return self._ask("GET", "/") == 200
        except OSError:
            return False

    def _ask(self, method: str, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path)
            return connection.getresponse().status
        finally:
            connection.close()


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """One for the block, which clients in this process have configured."""
    server = S3Server(directory)
    before = os.environ.get(ENDPOINT)
    os.environ[ENDPOINT] = server.endpoint
    try:
        yield server
    finally:
        del os.environ[ENDPOINT]
        if before is not None:
            os.environ[ENDPOINT] = before
        server.kill()


def store_on(server: S3Server, prefix: str = "") -> S3Store:
    """A store there, for this process."""
    return S3Store(
        BUCKET,
        prefix,
        {
            "endpoint": server.endpoint,
            "region": REGION,
            "access_key_id": "test",
            "secret_access_key": "test",
        },
    )


def settings_for(server: S3Server, directory: Path, prefix: str = "") -> dict[str, str]:
    """The settings of a broker that keeps its files there."""
    keys = directory / "s3-keys"
    keys.write_text("[default]\naws_access_key_id = test\naws_secret_access_key = test\n")
    return {
        "filer.root": f"s3://{BUCKET}/{prefix}",
        "filer.s3.endpoint": server.endpoint,
        "filer.s3.region": REGION,
        "filer.s3.credentials": str(keys),
    }
