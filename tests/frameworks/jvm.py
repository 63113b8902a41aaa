"""Programs of the frameworks in `java/`, as users run them: a JVM each, with their own jars."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smq.testing.processes import Child
from tests.clients.toolchain import java_classes

HERE = Path(__file__).parent
HEAP = "-Xmx384m"


def command(main: str, *arguments: str) -> list[str]:
    """A class's `main` with the frameworks' jars; these are fetched and built at the first call."""
    classes = java_classes(HERE / "java", "frameworks-1.jar")
    return ["java", HEAP, "-cp", classes, main, *arguments]


@contextmanager
def program(output: Path, main: str, *arguments: str) -> Iterator[Child]:
    """It runs; whoever has not ended it is sent SIGTERM here."""
    child = Child.start(command(main, *arguments), output)
    try:
        yield child
    finally:
        child.terminate()
