"""`smq spark` finds its jobs and hands them the rest of the line."""

import pytest

from smq.cli.spark import jobs
from tests.app.smq_command import smq


def test_a_job_that_is_not_there_is_named_with_those_that_are() -> None:
    done = smq("spark", "nonsense")
    assert done.returncode == 1
    assert done.stderr == f"smq: unknown job 'nonsense'; the jobs are {', '.join(jobs())}\n"


@pytest.mark.slow
def test_a_job_gets_its_own_options() -> None:
    for job in jobs():
        assert "--data-dir" in smq("spark", job, "--help").stdout


def test_the_jobs_are_named_in_the_help() -> None:
    said = smq("spark", "--help").stdout
    assert len(jobs()) > 1
    assert [job for job in jobs() if job not in said] == []
