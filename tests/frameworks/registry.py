"""Apicurio Registry, a schema registry that keeps its state in a topic of Kafka's."""

import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from smq.testing.processes import Child, free_port
from tests.clients import toolchain

VERSION = "3.3.3"
JAVA_MIN = 21
READY_SECONDS_MAX = 300
REST_SECONDS_MAX = 60
POLL_SECONDS = 0.5


@cache
def java() -> str:
    """A Java that is new enough: that of JAVA_HOME or PATH, or one that is installed beside it."""
    home = os.environ.get("JAVA_HOME")
    beside = [str(each) for each in Path("/usr/lib/jvm").glob("*/bin/java")]
    for program in (*([f"{home}/bin/java"] if home else []), "java", *beside):
        if _java_version(program) >= JAVA_MIN:
            return program
    return toolchain.missing(f"Apicurio Registry {VERSION} needs Java {JAVA_MIN}")


def _java_version(program: str) -> float:
    """0 of what is no Java."""
    with suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=REST_SECONDS_MAX,
        ).stderr
        found = re.search(r"java\.specification\.version = (\d+(\.\d+)?)", said)
        return float(found[1]) if found else 0.0
    return 0.0


@cache
def application() -> Path:
    """The registry's runnable jar, fetched if need be."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "smq-test" / f"apicurio-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "complete").exists():
        artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy"
        options = (f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
        toolchain.build(["mvn", "--quiet", "--batch-mode", goal, *options], folder)
        [archive] = folder.glob("*.tar.gz")
        toolchain.build(["tar", "xzf", str(archive)], folder)
        archive.unlink()
        (folder / "complete").touch()
    return folder / "quarkus-run.jar"


class Registry:
    """It runs; asked through the API of Confluent's registry, which clients' serializers speak."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, path: str, body: object = None) -> Any:
        """Raises urllib.error.URLError, an OSError."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/apis/ccompat/v7{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=REST_SECONDS_MAX) as answer:
            return json.loads(answer.read())

    def register(self, subject: str, schema: object) -> int:
        """The schema's id. Raises HTTPError."""
        said = self.ask(f"/subjects/{subject}/versions", {"schema": json.dumps(schema)})
        return int(said["id"])


@contextmanager
def registry(bootstrap: str, output: Path) -> Iterator[Registry]:
    """It is ready, with its state in topics of the broker; killed at the end."""
    port, health_port = free_port(), free_port()
    environment = {
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
        "QUARKUS_MANAGEMENT_PORT": str(health_port),
    }
    command = [java(), "-Xmx512m", "-jar", str(application())]
    child = Child.start(command, output, environment)
    try:
        child.wait_ready(lambda: _ready(health_port), READY_SECONDS_MAX)
        yield Registry(port)
    finally:
        child.kill()


def _ready(port: int) -> bool:
    time.sleep(POLL_SECONDS)
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready") as said:
        return bool(said.status == HTTPStatus.OK)
    return False
