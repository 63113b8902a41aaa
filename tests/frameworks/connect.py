"""Kafka Connect's workers, as `connect-standalone.sh` and `connect-distributed.sh` start them."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from smq.testing.processes import Child, free_port
from tests.frameworks.jvm import command

READY_SECONDS_MAX = 120
REST_SECONDS_MAX = 60  # A worker that rebalances answers late.
POLL_SECONDS = 0.2

_WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "500",
    "consumer.auto.offset.reset": "earliest",
}
_DISTRIBUTED = {
    "group.id": "connect",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.storage.partitions": "3",
    "status.storage.partitions": "2",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "scheduled.rebalance.max.delay.ms": "0",
}


def write_properties(path: Path, values: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


class Worker:
    """A worker of Kafka Connect, and its REST interface."""

    def __init__(self, directory: Path, kind: str, settings: Mapping[str, str]) -> None:
        """`kind` is Standalone or Distributed."""
        self._port = free_port()
        self._kind, self._directory = kind, directory
        self._settings = {**settings, "listeners": f"http://127.0.0.1:{self._port}"}
        self.output = directory / f"worker-{self._port}.log"

    @contextmanager
    def running(self, *connectors: Mapping[str, str]) -> Iterator["Worker"]:
        """It answers; a standalone worker starts these connectors. Sent SIGTERM at the end."""
        name = f"worker-{self._port}.properties"
        files = [write_properties(self._directory / name, self._settings)]
        for each in connectors:
            path = self._directory / f"{each['name']}.properties"
            files.append(write_properties(path, each))
        main = f"org.apache.kafka.connect.cli.Connect{self._kind}"
        self.child = Child.start(command(main, *map(str, files)), self.output)
        try:
            self.child.wait_ready(self._answers, READY_SECONDS_MAX)
            yield self
        finally:
            self.child.terminate()

    def _answers(self) -> bool:
        time.sleep(POLL_SECONDS)  # Each question costs a starting JVM something.
        with suppress(OSError):
            return bool(self.ask("GET", "/"))
        return False

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Raises urllib.error.URLError, an OSError."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=REST_SECONDS_MAX) as answer:
            said = answer.read()
        return json.loads(said) if said else None

    def configure(self, connector: Mapping[str, str]) -> None:
        """Make a connector, or change it; again while the worker rebalances."""
        path = f"/connectors/{connector['name']}/config"
        deadline = time.monotonic() + REST_SECONDS_MAX
        while True:
            try:
                self.ask("PUT", path, connector)
            except urllib.error.HTTPError as refusal:
                if refusal.code not in (409, 500) or time.monotonic() > deadline:
                    raise AssertionError(refusal.read().decode()) from refusal
                time.sleep(POLL_SECONDS)
            else:
                return

    def states(self, connector: str) -> list[str]:
        """Of the connector and of each of its tasks."""
        try:
            status = self.ask("GET", f"/connectors/{connector}/status")
        except urllib.error.HTTPError:
            return []
        return [each["state"] for each in (status["connector"], *status["tasks"])]

    def until_running(self, connector: str, tasks: int = 1) -> None:
        """The connector and all its tasks run. Raises AssertionError."""
        deadline = time.monotonic() + REST_SECONDS_MAX
        while (found := self.states(connector)) != ["RUNNING"] * (1 + tasks):
            assert time.monotonic() < deadline, f"{connector}: {found}\n{self.child.tail()}"
            time.sleep(POLL_SECONDS)


def standalone(directory: Path, bootstrap: str) -> Worker:
    """It keeps the offsets of its sources in a file."""
    own = {"bootstrap.servers": bootstrap, "offset.storage.file.filename": f"{directory}/offsets"}
    return Worker(directory, "Standalone", _WORKER | own)


def distributed(directory: Path, bootstrap: str) -> Worker:
    """It keeps all its state in topics; sources write exactly once."""
    own = {"bootstrap.servers": bootstrap, "exactly.once.source.support": "enabled"}
    return Worker(directory, "Distributed", _WORKER | _DISTRIBUTED | own)


def file_source(file: Path, topic: str, **settings: str) -> dict[str, str]:
    """A connector that makes each line of a file a record."""
    return {
        "name": "source",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": topic,
        **settings,
    }


def file_sink(file: Path, topic: str) -> dict[str, str]:
    """A connector that makes each record a line of a file."""
    return {
        "name": "sink",
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "1",
        "file": str(file),
        "topics": topic,
        "consumer.override.isolation.level": "read_committed",
    }
