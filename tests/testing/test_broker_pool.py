"""The warm process: its forks, its clean-up, and its end with its owner."""

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from smq.testing import broker
from smq.testing.broker_pool import BrokerPool, broker_pool
from smq.testing.processes import answers
from tests.app.fake_broker import eventually, gone

OWNER = """
import os, signal, sys
from smq.testing import broker
from smq.testing.broker_pool import broker_pool

with broker() as first:
    print(broker_pool().home, *first.pids(), flush=True)
    {end}
"""


def owner(end: str) -> tuple[Path, list[int]]:
    """A process that has had a broker, and ended: its directory, the broker's processes."""
    code = OWNER.format(end=end)
    run = subprocess.run(  # noqa: PLW1510  (it may have been killed)
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    home, *pids = run.stdout.split()
    return Path(home), [int(pid) for pid in pids]


@pytest.mark.slow
@pytest.mark.parametrize(
    "end",
    ["pass", "sys.exit(1)", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"],
    ids=["returns", "exits", "leaves at once", "is killed"],
)
def test_nothing_is_left_however_the_owner_ends(end: str) -> None:
    home, pids = owner(end)
    assert pids
    assert all(gone(pid) for pid in pids)
    eventually(lambda: not home.exists(), "the directory is removed")


def test_a_pool_has_one_thread_and_leaves_no_zombies() -> None:
    with broker() as one:
        pids = one.pids()
        supervisor = Path(f"/proc/{one.pids()[0]}")
        parent = int((supervisor / "stat").read_text().rpartition(")")[2].split()[1])
        assert len([*Path(f"/proc/{parent}/task").iterdir()]) == 1
        assert len([*(supervisor / "task").iterdir()]) == 1
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "all are reaped")


def test_a_broker_holds_no_descriptor_of_the_pool_nor_of_other_brokers() -> None:
    def sockets(pid: int) -> set[str]:
        links = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
        return {link for link in links if link.startswith("socket:")}

    with broker() as first, broker() as second:
        (one, *_), (two, *_) = first.pids(), second.pids()
        assert sockets(one)
        assert not sockets(one) & sockets(two)
        parent = int(Path(f"/proc/{two}/stat").read_text().rpartition(")")[2].split()[1])
        assert not sockets(two) & sockets(parent)


def test_threads_of_one_process_may_ask_at_once() -> None:
    def one(number: int) -> int:
        with broker(num_partitions=number) as mine:
            assert answers(mine.port)
            return mine.port

    with ThreadPoolExecutor(4) as pool:
        ports = [*pool.map(one, range(1, 5))]
    assert len(set(ports)) == len(ports)


def test_a_fork_of_the_owner_starts_its_own() -> None:
    with broker():
        ours = broker_pool()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                if not ours.running and broker_pool() is not ours:
                    broker_pool().close()
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert broker_pool() is ours


def test_a_pool_that_was_killed_is_named_and_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("smq.testing.broker_pool._pools", [])
    first = broker_pool()
    os.kill(first._process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="the pool starts no broker"):
        first.start({}, tmp_path / "output")
    eventually(lambda: not first.running, "its end is seen")
    second = broker_pool()
    assert second is not first
    for each in (first, second):
        each.close()
    assert not first.home.exists()
    assert not second.home.exists()


def test_small_shared_memory_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smq.testing.broker_pool.ROOM_BYTES_MIN", 1 << 60)
    small = BrokerPool()
    try:
        assert small.home.parent != Path("/dev/shm")
        assert small.home.is_dir()
    finally:
        small.close()


def test_its_end_ends_its_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smq.testing.broker_pool._pools", [])
    with broker() as one:
        pids, home = one.pids(), broker_pool().home
        with socket.create_connection(("127.0.0.1", one.port)):
            broker_pool().close()
        assert all(gone(pid) for pid in pids)
        (one.data_dir).mkdir(parents=True)
        (one.data_dir / "lock").touch()  # What the block removes at its end.
    home.rmdir()
