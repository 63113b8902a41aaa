"""The command line as a user meets it: what it prints, where, and its exit codes."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from smq.model.config import SETTINGS
from tests.app.fake_broker import running

SMQ = [sys.executable, "-m", "smq.app.cli"]


def smq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SMQ, *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "200"} | environment,
    )


def test_help_and_import_load_nothing_heavy() -> None:
    heavy = {"numpy", "numba", "pyarrow"}
    code = (
        "import sys, smq\n"
        "from typer.testing import CliRunner\n"
        "from smq.app.cli import app\n"
        "assert 'serve' in CliRunner().invoke(app, ['--help']).output\n"
        f"print({heavy} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_help_of_serve_names_every_setting() -> None:
    text = smq("serve", "--help").stdout
    for setting in SETTINGS.values():
        assert f"{setting.option} " in text


def test_the_printed_config_is_a_configuration_file_that_gives_the_same(tmp_path: Path) -> None:
    printed = smq("serve", "--print-config", "--port", "0", SMQ_SEAL_MS="5", HOME="/").stdout
    assert tomllib.loads(printed)["seal"]["ms"] == 5
    (tmp_path / "smq.toml").write_text(printed)
    again = smq("serve", "--print-config", "--config", str(tmp_path / "smq.toml"), HOME="/").stdout
    assert again == printed


def test_all_problems_are_refused_at_once_on_stderr() -> None:
    done = smq("serve", "--port", "x", "--shards", "0", SMQ_NONSENSE="1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "smq: nonsense (environment): there is no such setting",
        "smq: port (command line): 'x' is not a whole number",
        "smq: shards (command line): 0 is too small; it must be at least 1",
    ]


@pytest.mark.parametrize("arguments", [("serve", "--nonsense"), ("nonsense",)])
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    assert smq(*arguments).returncode == 2


def test_a_configuration_file_that_is_not_there_is_named() -> None:
    done = smq("serve", "--config", "/nowhere/smq.toml")
    assert done.returncode == 1
    assert done.stderr.startswith("smq: the configuration file cannot be read")


def test_it_does_not_run_without_assertions() -> None:
    done = smq("serve", "--help", PYTHONOPTIMIZE="1")
    assert done.returncode == 1
    assert done.stderr.startswith("smq: it must not run without assertions")


def test_status_shows_processes_and_bytes(tmp_path: Path) -> None:
    with running(tmp_path, 2) as broker:
        done = smq("status", "--data-dir", str(tmp_path), "--json")
        facts = json.loads(done.stdout)
        assert facts["ready"]
        assert facts["bootstrap"] == broker.status().bootstrap
        assert facts["processes"].keys() == {"shard-1", "shard-2", "coordinator", "sealer"}
        assert [node["id"] for node in facts["nodes"]] == [1, 2]
        assert facts["bytes"]["rings"] == 2 * 4 * 1024 * 1024
        text = smq("status", "--data-dir", str(tmp_path)).stdout
        assert f"{broker.status().bootstrap}  ready" in text
        assert "shard-2" in text


def test_status_without_a_broker_says_what_to_do(tmp_path: Path) -> None:
    done = smq("status", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        f"smq: no broker serves {tmp_path}; start one with `smq serve`, "
        "or name its directory with --data-dir\n"
    )
