"""Apache Kafka itself, as one KRaft node: the oracle of our tests, the yardstick of our benchmark.

Its jars come from Maven Central once, into a cache of this machine. The JVM gets the options of
Kafka's own start script, so that comparisons are with Kafka as people run it.

    with Kafka(directory, {"auto.create.topics.enable": "false"}) as kafka:
        ...  # kafka.bootstrap
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from smq.testing.processes import Child, answers, free_port

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.25.3"
CLUSTER_ID = "c21xLW9yYWNsZS1rYWZrYQ"
FETCH_SECONDS_MAX = 300
READY_SECONDS_MAX = 180.0  # Two JVMs start one after the other, perhaps on a busy machine.

# As kafka-server-start.sh sets them.
_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>smq.testing</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>{LOG4J_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

_LOG4J = """\
<Configuration status="WARN">
  <Appenders>
    <Console name="console"><PatternLayout pattern="%d %p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="console"/></Root></Loggers>
</Configuration>
"""

# There is one node, and a group does not wait for a second member.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class KafkaUnavailable(Exception):
    """There is no Java here, or no access to Kafka's jars."""


def kafka_jars() -> Path:
    """The directory of Kafka's jars, fetched if needed. Raises KafkaUnavailable."""
    if not shutil.which("java"):
        raise KafkaUnavailable("Apache Kafka needs Java 17, and there is none here")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = home / "smq-test" / f"kafka-{KAFKA_VERSION}"
    jars, complete = cache / "libs", cache / "complete"
    if not complete.exists():
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "pom.xml").write_text(_POM)
        _fetch(cache, jars)
        (cache / "log4j2.xml").write_text(_LOG4J)
        complete.touch()
    return jars


def _fetch(cache: Path, jars: Path) -> None:
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy-dependencies"
    command = ["mvn", "--quiet", "--batch-mode", goal, f"-DoutputDirectory={jars}"]
    try:
        subprocess.run(  # noqa: S603
            command, cwd=cache, check=True, capture_output=True, timeout=FETCH_SECONDS_MAX
        )
    except FileNotFoundError as error:
        raise KafkaUnavailable("Apache Kafka's jars need Maven, and there is none here") from error
    except subprocess.SubprocessError as error:
        words = getattr(error, "stdout", None) or b""
        raise KafkaUnavailable(
            f"Maven could not fetch Apache Kafka: {error}\n{words.decode()[-2000:]}"
        ) from error


class Kafka:
    """One running Apache Kafka. `restart` starts it again after a kill or stop."""

    name = "kafka"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
        *,
        listeners: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        """`listeners`: the protocols of further listeners, by their names."""
        self.port = free_port()
        self._also = {name: free_port() for name in listeners or ()}
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._directory = directory
        self._properties = directory / "server.properties"
        jars = kafka_jars()
        self._java = ["java", *_JVM, f"-Dlog4j2.configurationFile={jars.parent / 'log4j2.xml'}"]
        self._java += [*java_options, "-cp", f"{jars}/*"]
        directory.mkdir(parents=True, exist_ok=True)
        named = self._named(listeners or {}, free_port())
        self._write_properties({**_SETTINGS, **named, **(settings or {})})
        self._format(format_options)
        self._child = self._start()

    def _named(self, protocols: Mapping[str, str], controller_port: int) -> dict[str, str]:
        """The settings of all listeners."""
        ports = {"PLAINTEXT": self.port} | self._also
        mapped = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **protocols}
        addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        return {
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"{addresses},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": addresses,
            "listener.security.protocol.map": ",".join(map(":".join, mapped.items())),
        }

    def port_of(self, listener: str) -> int:
        """The port of a further listener."""
        return self._also[listener]

    def _write_properties(self, settings: Mapping[str, str]) -> None:
        values = {"log.dirs": str(self._directory / "data")} | dict(settings)
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in values.items()))

    def _format(self, options: Sequence[str]) -> None:
        tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties)]
        subprocess.run(  # noqa: S603
            [*self._java, *tool, *options],
            check=True,
            capture_output=True,
            timeout=READY_SECONDS_MAX,
        )

    def _start(self) -> Child:
        command = [*self._java, "kafka.Kafka", str(self._properties)]
        child = Child.start(command, self._directory / "output.log")
        child.wait_ready(lambda: answers(self.port), READY_SECONDS_MAX)
        return child

    def pids(self) -> list[int]:
        return [self._child.pid] if self._child.running else []

    def kill(self, process: str = "kafka") -> None:
        """`kill -9`; there is only one process, whatever the name."""
        del process
        self._child.kill()

    def restart(self) -> None:
        """Start it again on the same port and data, unless it runs."""
        if not self._child.running:
            self._child = self._start()

    def stop(self) -> None:
        self._child.terminate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
