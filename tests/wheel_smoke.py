"""What ships: `python -m tests.wheel_smoke [WHEEL]`.

Builds a wheel of this checkout, installs it beside nothing of it, asks it for help and has it run a
user's test: an editable installation lies about both. Dependencies are those of the environment. A
WHEEL that is given, of `make wheel`, brings compiled kernels: a broker and a program must then
compile none.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from bench.first_message import first_message, install

FOLDERS = {"smq", "shm", "gateway", "spark_jobs", "pyspark_smq"}

# A test of a user, whose broker comes with the wheel; what tests SMQ itself does not.
USER_TEST = """
from importlib.util import find_spec
import smq.testing
with smq.testing.broker(shards=1) as broker, broker.connect() as client:
    client.create_topic("tested")
    with client.producer() as producer:
        assert producer.send("tested", b"message").result().offset == 0
assert not find_spec("smq.testing.simulation")
assert not find_spec("smq.testing.kill_run")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        if sys.argv[1:]:
            check_that_nothing_is_compiled(Path(sys.argv[1]), Path(directory))
        else:
            check_help(build(Path(directory)), Path(directory))


def build(directory: Path) -> Path:
    """A wheel of this checkout, without compiled kernels."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", ".", "--no-deps", "--wheel-dir", str(directory)], check=True)
    (wheel,) = directory.glob("*.whl")
    return wheel


def check_help(wheel: Path, directory: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    folders = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert folders == FOLDERS, f"the wheel holds {folders}"
    python = install(wheel, directory / "venv")
    code = (
        "import smq.app.supervisor.composition as c; from smq.cli.verbs import app\n"
        f"assert c.__file__.startswith({str(directory)!r}), c.__file__\n"
        "app(['--help'])"
    )
    command = [str(python), "-c", code]
    subprocess.run(command, check=True, cwd=directory, stdout=subprocess.DEVNULL)
    subprocess.run([str(python), "-c", USER_TEST], check=True, cwd=directory)


def check_that_nothing_is_compiled(wheel: Path, directory: Path) -> None:
    took = first_message(wheel, directory)
    assert not any("compil" in line for line in took.said), took.said
    assert took.compiled == 0, f"{took.compiled} kernels were compiled"
    print(f"{wheel.name}: the first message after {took.ready_s + took.message_s:.1f} s")  # noqa: T201


if __name__ == "__main__":
    main()
