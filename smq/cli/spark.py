"""`smq spark JOB …`: runs a job of `spark_jobs` as a separate program.

The job gets the remaining arguments. Java is the machine's, else the packaged one (extra `spark`).
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from smq.app.process.program import command, importing

PASS_THROUGH = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,  # Arguments after the job, --help too, belong to the job.
}


def jobs() -> list[str]:
    """The modules of spark_jobs that are programs, found without importing them."""
    found = find_spec("spark_jobs")
    assert found is not None
    assert found.submodule_search_locations
    files = (p for root in found.submodule_search_locations for p in Path(root).glob("*.py"))
    return sorted(file.stem for file in files if '__name__ == "__main__"' in file.read_text())


def spark(
    context: typer.Context,
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="audit, backfill, compact_keys, decode, dedup, departures, flight_delays, "
            "ingest, lag, replay, topic_stats.",
            autocompletion=jobs,
        ),
    ],
) -> None:
    """Run a Spark job over topics; `smq spark JOB --help` shows its options."""
    if job not in jobs():
        raise SystemExit(f"smq: unknown job {job!r}; the jobs are {', '.join(jobs())}")
    if find_spec("pyspark") is None:
        raise SystemExit("smq: Spark is not installed; `pip install 'smq-broker[spark]'`")
    started = command(f"spark_jobs.{job}", *context.args)
    os.execve(sys.executable, started, importing())  # noqa: S606  (one of ours, by name)
