"""A copying program's task, and where it copies to."""

import json
import signal
import subprocess
import sys

from smq.testing.transactions.copier import BATCH_MAX, SPREAD, Task, command, spread


def test_a_task_comes_through_the_command_line() -> None:
    task = Task(3, 1, "smq", 1, 1, "/notes", 7)
    assert Task(**json.loads(command("host:1", task)[-1])) == task


def test_the_second_stage_reads_what_the_first_one_writes() -> None:
    first, second = (Task(0, 0, "smq", stage, 1, "", 0) for stage in range(2))
    assert first.topics[1] == second.topics[0]
    assert (first.partitions, second.partitions) == ([1], spread(1))
    assert SPREAD <= BATCH_MAX, "a transaction has copies in several partitions"


def test_each_life_of_a_program_has_its_transactional_id() -> None:
    lives = {Task(3, life, "smq", 1, 1, f"/notes-{life}", 7).name for life in range(3)}
    assert lives == {"copier-3"}


def test_a_call_that_hangs_ends_its_process_and_one_that_returns_does_not() -> None:
    begin = (
        "from threading import Event\n"
        "from smq.testing.transactions.copier import dies_if_hung\n"
        "with dies_if_hung(1): "
    )
    hung = subprocess.run([sys.executable, "-c", begin + "Event().wait(60)"])  # noqa: PLW1510
    assert hung.returncode == -signal.SIGALRM
    returned = subprocess.run([sys.executable, "-c", begin + "pass\nEvent().wait(1.5)"])  # noqa: PLW1510
    assert returned.returncode == 0
