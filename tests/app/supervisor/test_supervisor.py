"""Forks, deaths, restarts and stops, with real processes that do nothing."""

import os
import signal
from pathlib import Path

import pytest

from smq.app.process.clock import monotonic_ms
from smq.app.process.status import read_status
from smq.app.supervisor.supervisor import RESTART_PAUSE_MS_MAX, console_address, restart_pause_ms
from tests.app.fake_broker import Running, eventually, gone, running


def test_every_process_gets_its_own_share_and_nothing_else(tmp_path: Path) -> None:
    with running(tmp_path, 2) as broker:
        first, second = broker.ask_shard(1), broker.ask_shard(2)
        assert (first["logs"], second["logs"]) == ([0], [1])
        assert (first["mapped"], second["mapped"]) == ([0], [1])
        for name in ("coordinator", "sealer"):
            about = broker.ask(name)
            assert about["logs"] == about["mapped"] == []
            assert not [path for path in about["open"] if "smq-log" in path]
            assert not [path for path in about["open"] if "relays" in path]
        for about in (first, second):
            assert about["parent"] == broker.process.pid
            assert about["threads"] == 1
            assert len([path for path in about["open"] if "relays" in path]) == 1
            assert about["ports"] == first["ports"]
            assert not [path for path in about["open"] if "supervisor.lock" in path]
            assert [path for path in about["open"] if path.endswith("/lock")]


def test_ready_names_the_addresses_and_a_stop_is_clean_and_quick(tmp_path: Path) -> None:
    with running(tmp_path, 2) as broker:
        assert broker.lines[-1] == f"ready {broker.status().bootstrap}"
        assert broker.status().ready
        pids = [process.pid for process in broker.status().processes.values()]
        runtime_dir, started_ms = broker.runtime_dir(), monotonic_ms()
        broker.process.send_signal(signal.SIGTERM)
        assert broker.wait_exit() == 0
        assert monotonic_ms() - started_ms < 2000
        assert all(gone(pid) for pid in pids)
        assert read_status(tmp_path) is None
        assert not runtime_dir.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_the_terminal_stops_it_too(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, 1) as broker:
        broker.process.send_signal(number)
        assert broker.wait_exit() == 0


def test_a_killed_shard_comes_back_with_the_next_generation(tmp_path: Path) -> None:
    with running(tmp_path, 2) as broker:
        assert broker.ask_shard(1)["generations"] == [0, 0]
        old = broker.pid("shard-2")
        os.kill(old, signal.SIGKILL)
        broker.wait_line(f"shard-2 (process {old}) was killed by SIGKILL; it is restarted")
        about = broker.ask_shard(2)  # Not refused: the listener is the supervisor's.
        assert about["pid"] != old
        assert about["generation"] == 1
        assert about["generations"] == broker.ask_shard(1)["generations"] == [0, 1]
        eventually(lambda: broker.status().ready, "the shard reports ready again")
        assert broker.status().processes["shard-2"].restarts == 1


def test_an_epoch_that_the_coordinator_draws_and_a_generation_are_never_the_same(
    tmp_path: Path,
) -> None:
    with running(tmp_path, 1, "coordinator=draw") as broker:
        assert broker.ask("coordinator")["epoch"] == 1
        os.kill(broker.pid("shard-1"), signal.SIGKILL)
        assert broker.ask_shard(1)["generation"] == 2
        os.kill(broker.pid("coordinator"), signal.SIGKILL)
        eventually(lambda: broker.status().ready, "the coordinator reports ready again")
        assert broker.ask("coordinator")["epoch"] == 3
        for about in (broker.ask_shard(1), broker.ask("sealer")):
            assert (about["epoch"], about["epoch_sockets"]) == (None, [])
    with running(tmp_path, 1) as broker:
        assert broker.ask_shard(1)["generation"] == 4


def test_the_front_inherits_the_http_listener_and_no_shared_memory(tmp_path: Path) -> None:
    with running(tmp_path, 1, "front=") as broker:
        console, ready = broker.lines[-2:]
        assert console.startswith(f"console http://{broker.status().http}/#token=")
        assert len(console.partition("token=")[2]) >= 24
        assert ready == f"ready {broker.status().bootstrap}"
        about = broker.ask_front()
        assert about["logs"] == about["mapped"] == []
        assert not [path for path in about["open"] if "front-" in path]  # There are no rules.
        old = broker.pid("front")
        os.kill(old, signal.SIGKILL)
        broker.wait_line(f"front (process {old}) was killed by SIGKILL; it is restarted")
        about = broker.ask_front()  # Not refused: the listener is the supervisor's.
        assert about["pid"] != old
        assert about["generation"] == 0
    with running(tmp_path, 1) as broker:
        assert (broker.status().http, "front" in broker.status().processes) == ("", False)


def test_the_console_address_is_one_at_which_the_console_answers() -> None:
    """Door fault 1, its sibling: under a name, and other addresses, browsers mark no request."""
    assert console_address("0.0.0.0", 80) == "127.0.0.1:80"
    assert console_address("::", 80) == "[::1]:80"
    assert console_address("127.0.0.1", 80) == "127.0.0.1:80"


@pytest.mark.parametrize("name", ["coordinator", "sealer"])
def test_a_killed_helper_comes_back_and_takes_no_generation(tmp_path: Path, name: str) -> None:
    with running(tmp_path, 1) as broker:
        old = broker.pid(name)
        os.kill(old, signal.SIGKILL)
        broker.wait_line("it is restarted")
        about = broker.ask(name)
        assert about["pid"] != old
        assert about["generation"] == 0


def test_generations_never_go_back_over_starts_and_restarts(tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        with running(tmp_path, 1) as broker:
            seen.append(broker.ask_shard(1)["generation"])
            os.kill(broker.pid("shard-1"), signal.SIGKILL)
            broker.wait_line("it is restarted")
            seen.append(broker.ask_shard(1)["generation"])
    assert seen == [0, 1, 2, 3, 4, 5]


def test_killing_the_supervisor_ends_everybody_and_the_next_start_serves(tmp_path: Path) -> None:
    with running(tmp_path, 2) as broker:
        pids = [process.pid for process in broker.status().processes.values()]
        broker.process.kill()
        assert all(gone(pid) for pid in pids)
        assert read_status(tmp_path) is None
    with running(tmp_path, 2) as broker:
        assert broker.ask_shard(1)["generation"] == 1


def test_logs_stay_when_shards_are_lowered_and_raised(tmp_path: Path) -> None:
    with running(tmp_path, 3) as broker:
        assert len(broker.status().log_memories) == 3
    with running(tmp_path, 1) as broker:
        assert broker.ask_shard(1)["logs"] == [0, 1, 2]
    with running(tmp_path, 2) as broker:
        assert (broker.ask_shard(1)["logs"], broker.ask_shard(2)["logs"]) == ([0, 2], [1])


def test_a_process_that_dies_once_is_restarted_at_once(tmp_path: Path) -> None:
    with running(tmp_path, 1, "sealer=die-once") as broker:
        assert any(
            line.endswith("ended with exit code 3; it is restarted") for line in broker.lines
        )


def test_a_process_that_keeps_dying_is_restarted_more_and_more_slowly(tmp_path: Path) -> None:
    broker = Running(tmp_path, 1, "sealer=die")
    try:
        broker.wait_line("it is restarted in 200 ms")
        broker.process.send_signal(signal.SIGTERM)
        assert broker.wait_exit() == 0
        pauses = [line.partition("; ")[2] for line in broker.lines if "; " in line]
        assert pauses == [
            "it is restarted",
            "it is restarted in 100 ms",
            "it is restarted in 200 ms",
        ]
    finally:
        broker.close()


def test_a_full_disk_keeps_a_killed_shard_down_and_the_rest_up(tmp_path: Path) -> None:
    with running(tmp_path, 2) as broker:
        (tmp_path / "meta.json.new").symlink_to("/dev/full")
        os.kill(broker.pid("shard-1"), signal.SIGKILL)
        broker.wait_line("shard-1 cannot be started yet; the others continue: [Errno 28]")
        assert broker.ask_shard(2)["generation"] == 0
        broker.process.send_signal(signal.SIGTERM)
        assert broker.wait_exit() == 0


def test_a_process_that_refuses_stops_the_start_with_its_sentence(tmp_path: Path) -> None:
    broker = Running(tmp_path, 1, "coordinator=refuse")
    try:
        assert broker.wait_exit() == 1
        assert broker.stderr() == "smq: coordinator will not\n"
    finally:
        broker.close()


def test_an_exception_in_a_process_is_printed_with_its_traceback_and_the_process_restarts(
    tmp_path: Path,
) -> None:
    broker = Running(tmp_path, 1, "sealer=bug")
    try:
        broker.wait_line("ended with exit code 1; it is restarted")
        broker.process.send_signal(signal.SIGTERM)
        assert broker.wait_exit() == 0
        assert "ValueError: a bug" in broker.stderr()
    finally:
        broker.close()


@pytest.mark.slow
def test_a_process_that_hangs_is_killed_at_the_deadline(tmp_path: Path) -> None:
    with running(tmp_path, 1, "shard-1=hang") as broker:
        started_ms = monotonic_ms()
        broker.process.send_signal(signal.SIGTERM)
        broker.wait_line("shard-1 did not stop in 4500 ms; it is killed")
        assert broker.wait_exit() == 0
        assert monotonic_ms() - started_ms < 5000


def test_pauses_grow_to_a_limit() -> None:
    pauses = [restart_pause_ms(died_young) for died_young in range(20)]
    assert pauses[:5] == [0, 0, 100, 200, 400]
    assert pauses == sorted(pauses)
    assert pauses[-1] == RESTART_PAUSE_MS_MAX
