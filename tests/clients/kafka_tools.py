"""Apache Kafka's command-line tools, called one after the other in one JVM."""

import base64
import subprocess
from copy import copy
from pathlib import Path
from typing import Self

from smq.testing.kafka import KafkaUnavailable, kafka_jars
from smq.testing.processes import Broker
from tests.clients import toolchain

TOOLS = "org.apache.kafka.tools"
SOURCE = Path(__file__).parent / "java" / "Toolbox.java"
STOP_SECONDS_MAX = 20
TOOL_SECONDS_MAX = 120


class Toolbox:
    """The tools against a broker. See `Toolbox.java`."""

    def __init__(self, broker: Broker) -> None:
        try:
            jars = kafka_jars()
        except KafkaUnavailable as reason:
            toolchain.missing(str(reason))
        self.bootstrap = broker.bootstrap
        self._login: tuple[str, ...] = ()
        self._java = ["java", "-Xmx512m", "-cp", f"{jars}/*"]
        self._jvm = subprocess.Popen(
            [*self._java, str(SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # The tools' own is in their answers.
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._jvm.kill()
        self._jvm.communicate(timeout=STOP_SECONDS_MAX)  # It closes the pipes, too.

    def logged_in(self, bootstrap: str, file: Path) -> Self:
        """The same JVM's tools, at another address, with the login of a properties file."""
        other = copy(self)
        other.bootstrap, other._login = bootstrap, ("--command-config", str(file))
        return other

    def call(self, tool: str, *arguments: str, given: str = "") -> tuple[int, str]:
        """The exit code and what was printed."""
        assert self._jvm.stdin
        assert self._jvm.stdout
        # A mark before each word: one may be empty.
        words = (
            "_" + base64.b64encode(each.encode()).decode() for each in (given, tool, *arguments)
        )
        self._jvm.stdin.write(" ".join(words) + "\n")
        self._jvm.stdin.flush()
        code, _, printed = self._jvm.stdout.readline().partition(" ")
        assert code, f"the JVM ended in {tool}"
        return int(code), base64.b64decode(printed).decode()

    def run(self, tool: str, *arguments: str, given: str = "") -> str:
        """What a tool of the package prints; it must succeed."""
        code, printed = self.call(*self._call(tool, arguments), given=given)
        assert code == 0, f"{tool} {arguments}:\n{printed}"
        return printed

    def alone(self, tool: str, *arguments: str) -> str:
        """What a tool prints in a JVM of its own: some speak when their JVM ends."""
        done = subprocess.run(
            [*self._java, *self._call(tool, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=TOOL_SECONDS_MAX,
        )
        assert done.returncode == 0, f"{tool} {arguments}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def refused(self, tool: str, *arguments: str, given: str = "") -> str:
        """What a tool prints that must fail."""
        code, printed = self.call(*self._call(tool, arguments), given=given)
        assert code != 0, f"{tool} {arguments}:\n{printed}"
        return printed

    def _call(self, tool: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
        where = ("--bootstrap-server", self.bootstrap, *self._login)
        name = tool if tool.startswith("kafka.") else f"{TOOLS}.{tool}"
        # What this tool shall do comes first.
        ends = tool == "ClusterTool"
        return (name, *arguments, *where) if ends else (name, *where, *arguments)

    def topics(self, *arguments: str) -> str:
        return self.run("TopicCommand", *arguments)

    def configs(self, *arguments: str) -> str:
        return self.run("kafka.admin.ConfigCommand", *arguments)

    def groups(self, *arguments: str) -> str:
        return self.run("consumer.group.ConsumerGroupCommand", *arguments)

    def offsets(self, topic: str, time: str) -> str:
        return self.run("GetOffsetShell", "--topic", topic, "--time", time).strip()

    def produce(self, topic: str, count: int) -> None:
        """Records 0, 1, 2 …, from a console; each is acknowledged before the tool ends."""
        lines = "".join(f"{number}\n" for number in range(count))
        self.run("ConsoleProducer", "--topic", topic, "--sync", "--timeout", "0", given=lines)
