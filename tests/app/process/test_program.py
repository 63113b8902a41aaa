"""Programs of ours: what they import, and which variables they get."""

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from smq.app.process import program
from smq.app.process.program import command, environment, importing

HOME = Path(program.__file__).parents[3]


def test_a_file_in_the_working_directory_is_not_imported(tmp_path: Path) -> None:
    """Door fault 5: a module in a directory of somebody else's ran in the broker's name."""
    for name in ("json.py", "smq.py", "calendar.py"):
        (tmp_path / name).write_text("raise SystemExit('planted')")
    started = command("smq.app.process.program")
    done = subprocess.run(started, cwd=tmp_path, env=importing(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_program_beside_strangers_gets_named_variables_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Door fault 6."""
    monkeypatch.setenv("SMQ_LAG_ALERT_WEBHOOK", "https://hooks.example/t0ken")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    monkeypatch.setenv("https_proxy", "http://proxy")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    given = environment()
    assert given["PATH"] == os.environ["PATH"]
    assert given["LC_ALL"] == "C.UTF-8"
    for name in ("SMQ_LAG_ALERT_WEBHOOK", "AWS_SECRET_ACCESS_KEY", "https_proxy", "LD_PRELOAD"):
        assert name not in given
    of_store = environment(with_store=True)
    assert of_store["AWS_SECRET_ACCESS_KEY"] == "key"
    assert of_store["https_proxy"] == "http://proxy"
    assert "SMQ_LAG_ALERT_WEBHOOK" not in of_store


def test_a_checkout_is_found_without_the_working_directory() -> None:
    assert importing({})["PYTHONPATH"] == str(HOME)
    assert importing({"PYTHONPATH": "/x"})["PYTHONPATH"] == f"/x{os.pathsep}{HOME}"
    assert importing({"PYTHONPATH": str(HOME)}) == {"PYTHONPATH": str(HOME)}


def test_an_installation_needs_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(HOME)])
    assert importing({"A": "b"}) == {"A": "b"}
    monkeypatch.setattr(site, "getsitepackages", list)
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(HOME))
    assert importing({"A": "b"}) == {"A": "b"}


def test_the_interpreter_is_ours() -> None:
    assert command("a.b", "c") == [sys.executable, "-P", "-m", "a.b", "c"]
