"""A broker's cost, and the processes to kill."""

import os
import time
from pathlib import Path

from smq.load.cost import broker_pids, cpu_seconds, data_dir_of, killer, pss_mb
from smq.testing.smq_broker import SmqBroker
from tests.another_user import needs_root


def test_an_smq_on_this_host_is_found_with_its_processes(smq_session_broker: SmqBroker) -> None:
    (supervisor,) = broker_pids(smq_session_broker.bootstrap)
    assert supervisor == smq_session_broker.status().supervisor_pid
    assert data_dir_of(smq_session_broker.bootstrap) == smq_session_broker.data_dir
    assert pss_mb([supervisor]) > pss_mb([supervisor], without="memfd:smq-log") > 10


def test_time_and_memory_are_those_of_processes() -> None:
    me = os.getpid()
    before, end = cpu_seconds([me]), time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    assert cpu_seconds([me]) > before
    assert pss_mb([me]) > 1
    assert pss_mb([2**22 + 1]) == cpu_seconds([2**22 + 1]) == 0  # There is no such process.


def test_processes_are_killed_in_turn_and_the_supervisor_is_not(tmp_path: Path) -> None:
    with SmqBroker(tmp_path) as broker:
        kill = killer(broker.bootstrap)
        assert kill is not None
        first = kill()
        broker.restart()
        assert {first, kill()} == {"coordinator", "sealer"}
        broker.restart()


@needs_root
def test_no_process_is_killed_that_another_user_names(tmp_path: Path) -> None:
    with SmqBroker(tmp_path) as broker:
        os.chown(broker.data_dir / "status.json", 4321, -1)
        assert data_dir_of(broker.bootstrap) is None
        assert killer(broker.bootstrap) is None


def test_killer_finds_nothing_to_kill_without_an_smq() -> None:
    assert killer("127.0.0.1:1") is None
