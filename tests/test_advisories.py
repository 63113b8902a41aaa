"""`make audit` fails on a known vulnerability, and on nothing that the network does."""

import json
import re
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.advisories import audit

BAD = {"id": "PYSEC-2026-1", "fix_versions": ["2.1"], "aliases": [], "description": "x"}


def run(stdout: str, stderr: str = "", exit_code: int = 0) -> tuple[int, str]:
    """The exit code after a pip-audit that has said this, and what is printed."""
    said: list[str] = []

    def call(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, exit_code, stdout, stderr)

    return audit(call, said.append), "\n".join(said)


def report(*vulnerabilities: Any) -> str:
    package = {"name": "some", "version": "2.0", "vulns": list(vulnerabilities)}
    skipped = {"name": "ours", "skip_reason": "it is not on PyPI"}
    return json.dumps({"dependencies": [package, skipped], "fixes": []})


def test_a_known_vulnerability_fails_and_is_named() -> None:
    code, said = run(report(BAD), "Found 1 known vulnerability in 1 package", exit_code=1)
    assert code == 1
    assert "some 2.0: PYSEC-2026-1, mended in 2.1" in said


def test_packages_without_one_pass() -> None:
    assert run(report()) == (0, "1 packages, 0 known vulnerabilities; 1 not on PyPI")


def test_a_mirror_without_advisories_is_no_audit() -> None:
    skipped = {"name": "some", "skip_reason": "Dependency not found on PyPI"}
    code, said = run(json.dumps({"dependencies": [skipped] * 3}))
    assert code == 0
    assert said.startswith("not run: ")


@pytest.mark.parametrize(
    "stderr",
    [
        "ERROR:pip_audit._cli:Could not connect to PyPI's vulnerability feed",
        "requests.exceptions.ConnectionError: Max retries exceeded with url: /pypi/some/2.0/json",
        "requests.exceptions.HTTPError: 503 Server Error: Unavailable",
    ],
)
def test_advisories_that_cannot_be_reached_fail_nothing(stderr: str) -> None:
    code, said = run("", stderr, exit_code=1)
    assert code == 0
    assert said.startswith("not run: ")


def test_advisories_that_take_too_long_fail_nothing() -> None:
    said: list[str] = []

    def call(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(command, 1)

    assert audit(call, said.append) == 0
    assert said[0].startswith("not run: ")


def test_a_pip_audit_that_cannot_run_fails() -> None:
    code, said = run("", "No module named pip_audit", exit_code=1)
    assert code == 1
    assert "No module named pip_audit" in said


def test_ruff_checks_for_security_everywhere_but_where_a_reason_is_given() -> None:
    rules = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["ruff"]["lint"]

    def of_security(names: Sequence[str]) -> set[str]:
        return {each for each in names if re.fullmatch(r"S\d*|ALL", each)}

    assert "S" in rules["select"]
    assert of_security(rules["ignore"]) == {"S101"}
    exceptions = {
        files: found
        for files, names in rules["per-file-ignores"].items()
        if (found := of_security(names))
    }
    assert exceptions == {
        "tests/**": {"S"},
        "bench/**": {"S603", "S607", "S101"},
        "smq/wire/generated/**": {"ALL"},
        "smq/agent/proto/*_pb2.py*": {"ALL"},
        "smq/sql/*": {"S608"},
    }
