"""A broker starts from plain options without Typer, and from all others with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from smq.app.process.program import ONE_THREAD
from smq.cli.start import StartOptions, plain_options, start
from tests.app.smq_command import smq


def test_options_with_values_are_read_and_the_last_of_a_name_counts() -> None:
    arguments = ["--port=1", "--config", "smq.toml", "--host", "", "--port", "0"]
    assert plain_options(arguments) == StartOptions(Path("smq.toml"), {"port": "0", "host": ""})
    assert plain_options([]) == StartOptions(None, {})
    assert plain_options(["--lag-alert-webhook=file:a=b"]) == StartOptions(
        None, {"lag.alert.webhook": "file:a=b"}
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--port", "1", "--print-config"],
        ["--port"],
        ["--port", "--host=h"],
        ["--port", "-1"],
        ["--port=-1"],
        ["--nonsense=1"],
        ["port=1"],
        ["1"],
        ["--"],
        [""],
    ],
)
def test_other_arguments_are_left_to_typer(arguments: list[str]) -> None:
    assert plain_options(arguments) is None


def test_settings_are_refused_alike_with_and_without_typer() -> None:
    plain, other = smq("serve", "--shards=0"), smq("serve", "--port=-1", "--shards=0")
    assert plain.returncode == other.returncode == 1
    assert plain.stderr == other.stderr.partition("\n")[2]


def test_a_start_from_plain_options_imports_no_typer() -> None:
    code = (
        "import sys, smq.cli.main as m, smq.cli.start as s\n"
        "sys.argv = ['smq', 'serve', '--shards=0']\n"
        "try: m.main()\n"
        "except SystemExit: print({'typer', 'click', 'numpy'} & sys.modules.keys())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_ctrl_c_during_a_start_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("gc.disable", lambda: None)
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr("smq.app.supervisor.composition.serve_broker", interrupted)
    with pytest.raises(SystemExit) as exited:
        start(StartOptions(None, {}))
    assert exited.value.code == 128 + signal.SIGINT


def test_a_started_broker_collects_garbage(tmp_path: Path) -> None:
    """It does so itself where kernels are linked, and nobody loads them."""
    code = (
        "import gc, sys\n"
        "from smq.app.supervisor import composition, serve\n"
        "from smq.cli.start import plain_options, start\n"
        "class Supervisor:\n"
        "    def __init__(self, *_): pass\n"
        "    def run(self): print(gc.isenabled())\n"
        "serve.Supervisor = Supervisor\n"
        "composition.warm_kernels = lambda: None\n"
        "start(plain_options(sys.argv[1:]))\n"
    )
    options = ["--port=0", "--ring-bytes=4MiB", f"--data-dir={tmp_path / 'data'}"]
    command = [sys.executable, "-c", code, *options]
    environment = os.environ | dict.fromkeys(ONE_THREAD, "1")  # NumPy is imported first here.
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "True"
