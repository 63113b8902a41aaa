"""The command line as a whole: its imports and its exits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.smq_command import smq


def test_help_and_import_load_nothing_heavy() -> None:
    heavy = {"numpy", "numba", "pyarrow"}
    code = (
        "import sys, smq\n"
        "from typer.testing import CliRunner\n"
        "from smq.cli.main import app\n"
        "assert 'serve' in CliRunner().invoke(app, ['--help']).output\n"
        f"print({heavy} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("arguments", [("serve", "--nonsense"), ("nonsense",)])
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    assert smq(*arguments).returncode == 2


def test_it_does_not_run_without_assertions() -> None:
    done = smq("serve", "--help", PYTHONOPTIMIZE="1")
    assert done.returncode == 1
    assert done.stderr.startswith("smq: assertions are required")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("smq ", {"serve", "status", "topic", "produce", "consume", "spark"}),
        ("smq topic ", {"create", "list", "describe", "delete"}),
        ("smq consume --fol", {"--follow"}),
    ],
)
def test_the_shell_completes_commands_and_options(typed: str, offered: set[str]) -> None:
    asked = {"_SMQ_COMPLETE": "complete_bash", "COMP_WORDS": typed}
    asked["COMP_CWORD"] = str(len(typed.split(" ")) - 1)
    program = Path(sys.executable).with_name("smq")
    done = subprocess.run(
        [program], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert offered <= set(done.stdout.split())
