"""`smq status` of a broker that runs, and of none."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from smq.cli.status import size, status
from tests.app.fake_broker import running
from tests.app.smq_command import SMQ, smq


@pytest.mark.slow
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
        assert "clients attached" in text
        assert f"missing: {broker.status().sockets[0]} " in text  # A fake knows of no groups.


@pytest.mark.slow
def test_it_is_watched_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [*SMQ, "status", "--data-dir", str(tmp_path), "--watch", "--interval", "0.1"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with (
        running(tmp_path, 1),
        subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE) as child,
    ):
        signal.signal(signal.SIGINT, before)
        assert child.stdout is not None
        for _ in range(2):
            assert json.loads(child.stdout.readline())["ready"]
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=20)
    assert child.returncode == 0


def test_a_directory_of_somebody_else_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("smq.cli.broker_facts.read_status", closed)
    with pytest.raises(SystemExit, match="this user may not read the broker's state"):
        status(data_dir=None)


def test_status_without_a_broker_says_what_to_do(tmp_path: Path) -> None:
    done = smq("status", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        f"smq: no broker serves {tmp_path}; start one with `smq serve`, "
        "or name its directory with --data-dir\n"
    )


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1023, "0.999 KiB"), (1536, "1.5 KiB"), (5 * 1024**4, "5 TiB")],
)
def test_sizes_have_three_digits_and_a_unit(count: int, words: str) -> None:
    assert size(count) == words
