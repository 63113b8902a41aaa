"""The verbs as a whole: what they import, and what the shell completes."""

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
        "from smq.cli.verbs import app\n"
        "assert 'serve' in CliRunner().invoke(app, ['--help']).output\n"
        f"print({heavy} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("arguments", [("serve", "--nonsense"), ("nonsense",)])
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    assert smq(*arguments).returncode == 2


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
