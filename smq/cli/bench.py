"""`smq bench`: a load, what it meets, and a page that shows it."""

import json
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.app.process.refusal import refuse_wire_only
from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    cluster_at,
    refusal,
    refuse_passed_on_config,
    split_pair,
)
from smq.cli.output import say, say_lines
from smq.model.named_files import read_named

if TYPE_CHECKING:
    from smq.load.results import Result
    from smq.load.workload import WorkloadStep

WORKLOADS = Path(__file__).parent.parent / "load" / "workloads"
JSON = "JSON: a line for each step, as in --results (docs/bench.md)"
NEEDED = ("confluent_kafka", "hdrh", "yaml")
app = typer.Typer(name="bench", help="Load a broker and measure it.", no_args_is_help=True)

Against = Annotated[
    Path | None,
    typer.Option("--against", metavar="FILE", help="Results to compare with, as ratios."),
]
Given = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a field; repeatable."),
]
Which = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD", show_default=False, help="A name from `smq bench list`, or a YAML file."
    ),
]
FindRate = Annotated[
    bool, typer.Option("--find-rate", help="Find the sustainable rate: producerRate 0.")
]


@app.command("list")
def list_workloads() -> None:
    """The workloads that come with SMQ: name, and what it is for."""
    for path in sorted(WORKLOADS.glob("*.yaml")):
        first = path.read_text().partition("\n")[0].removeprefix("# ")
        say(f"{path.stem:<18}{first}")


@app.command("run", epilog=JSON)
def run(  # noqa: PLR0913  (Each is an option.)
    workload: Which,
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    given: Given = None,
    find_rate: FindRate = False,
    label: Annotated[
        str, typer.Option("--label", help="The broker's name in the results; default: its address.")
    ] = "",
    results: Annotated[
        Path | None, typer.Option("--results", help="Append a line for each step to a file.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write a page of HTML.")] = None,
    against: Against = None,
    processes: Annotated[
        int,
        typer.Option("--processes", min=0, help="Processes of each kind; 0: by number of cores."),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Run a workload against a broker, SMQ or any other that speaks Kafka's protocol.

    Topics are made for the run and deleted after it.
    """
    refuse_wire_only()
    refuse_passed_on_config("smq bench")
    steps = steps_for(workload, given or [], find_rate=find_rate)
    before = _read(against) if against else []
    with cluster_at(bootstrap) as cluster:
        cluster.metadata([])
    measured: list[Result] = []
    problem = ""
    for step in steps:
        result, problem = measured_step(bootstrap, step, label or bootstrap, processes)
        measured.append(result)
        keep(results, result)
        say_lines(json.dumps(result) if as_json else _summary(result))
        if problem:
            break
    if report:
        write_report(report, measured, before)
    if before and not as_json:
        say_comparison(measured, before)
    if problem:
        raise refusal(problem)


@app.command("report")
def report_results(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS", show_default=False, help="Files that `run --results` wrote."
        ),
    ],
    *,
    output: Annotated[Path, typer.Option("--output", help="The page to write.")] = Path(
        "bench.html"
    ),
    against: Against = None,
) -> None:
    """Write results as one page of HTML; --against also prints the ratios."""
    measured = [each for path in results for each in _read(path)]
    if not measured:
        raise refusal("there are no results in these files")
    before = _read(against) if against else []
    write_report(output, measured, before)
    say(f"written to {output}")
    if before:
        say_comparison(measured, before)


def steps_for(
    workload: str, given: Sequence[str], *, find_rate: bool = False
) -> "list[WorkloadStep]":
    """The steps of a workload, by its name or file. Exits if the workload cannot run.

    A file may have several YAML documents.
    """
    missing = [each for each in NEEDED if find_spec(each) is None]
    if missing:
        raise refusal(f"{', '.join(missing)} is not installed; `pip install 'smq-broker[bench]'`")
    import yaml  # noqa: PLC0415  (an extra)

    from smq.load.workload import BadWorkload, steps_of  # noqa: PLC0415  (as above)

    path = WORKLOADS / f"{workload}.yaml"
    if not path.is_file():
        path = Path(workload)
    try:
        documents = list(yaml.safe_load_all(read_named(path, passed_on_as="runs").decode()))
        pairs = [split_pair(each, "--set") for each in given]
        overrides = {field: yaml.safe_load(value) for field, value in pairs}
    except FileNotFoundError as error:
        raise refusal(
            f"there is no workload {workload}: neither a file, nor one of `smq bench list`"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise refusal(f"{path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise refusal(f"{workload} is not YAML: {' '.join(str(error).split())}") from error
    if find_rate:
        overrides["producerRate"] = 0
    try:
        return [step for each in documents for step in steps_of(each, path.stem, overrides)]
    except BadWorkload as error:
        raise refusal(f"{workload}: {error}") from error


def measured_step(
    bootstrap: str, step: "WorkloadStep", label: str, processes: int = 0
) -> "tuple[dict[str, Any], str]":
    """Run a step; returns its result, and why it ended early or an empty sentence."""
    from smq.load.results import stamped  # noqa: PLC0415  (as above)
    from smq.load.run import RunEnded, run_step  # noqa: PLC0415  (as above)
    from smq.model.errors import BrokerError  # noqa: PLC0415  (as above)

    result: dict[str, Any]
    problem = ""
    try:
        with _shown(step) as show:
            result = run_step(bootstrap, step.workload, show, processes)
    except RunEnded as error:
        problem = str(error)
        result = error.result or {"ended": problem}
    except BrokerError as error:
        problem = error.message or f"the broker answers {error.code.name}"
        result = {"ended": problem}
    return stamped(result, step.workload.name, step.changes, label), problem


class _shown:  # noqa: N801  (used as a block, like a function)
    """Shows a step's progress: on a terminal, a line on stderr that updates each second."""

    def __init__(self, step: "WorkloadStep") -> None:
        from rich.console import Console  # noqa: PLC0415  (takes its time)

        changes = ", ".join(f"{name} {value}" for name, value in step.changes.items())
        self._name = f"{step.workload.name} {changes}".strip()
        self._console = Console(stderr=True)
        self._status = self._console.status(self._name)

    def __enter__(self) -> Callable[[dict[str, Any]], None]:
        if sys.stderr.isatty():
            self._status.start()
        return self._second

    def _second(self, row: dict[str, Any]) -> None:
        self._status.update(f"{self._name}: {second_in_words(row)}")

    def __exit__(self, *_: object) -> None:
        self._status.stop()


def second_in_words(row: dict[str, Any]) -> str:
    """Format one second of a run as a line."""
    mb = row["message_size"] / 1e6
    acked, received = row.get("acked", 0), row.get("received", 0)
    words = [
        f"{row['second']} s {row['phase']}",
        f"acked {acked:,}/s {acked * mb:,.1f} MB/s",
        f"read {received:,}/s {received * mb:,.1f} MB/s",
    ]
    if "publish_p99" in row:
        words.append(f"publish p99 {row['publish_p99'] / 1000:,.1f} ms")
    if row.get("failed"):
        words.append(f"failed {row['failed']:,}")
    return " · ".join(words)


def keep(path: Path | None, result: "Result") -> None:
    """Append a result to the file, if one is given."""
    from smq.load.results import append  # noqa: PLC0415  (as above)

    if path is None:
        return
    try:
        append(path, result)
    except OSError as error:
        raise refusal(f"{path} cannot be written: {error.strerror}") from error


def _read(path: Path) -> "list[Result]":
    from smq.load.results import BadResults, read  # noqa: PLC0415  (as above)

    try:
        return read(path)
    except BadResults as error:
        raise refusal(str(error)) from error


def _summary(result: "Result") -> str:
    from smq.load.results import FIGURES, figure_of, number, title  # noqa: PLC0415

    lines = [f"{title(result)} ({result['broker']})"]
    for figure in FIGURES:
        value = figure_of(result, figure)
        if value is not None:
            lines.append(f"  {figure.words:<40}{number(value):>14}")
    if ceiling := result.get("client", {}).get("ceiling_of_one_producer"):
        lines.append(f"  {'the client alone, msg/s':<40}{number(ceiling['msg_s']):>14}")
    if check := result.get("check"):
        facts = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in check.items())
        lines.append(f"  {facts}")
    return "\n".join(lines)


def say_comparison(measured: "Sequence[Result]", before: "Sequence[Result]") -> None:
    """Print each figure beside its earlier value."""
    from smq.load.results import compared, number  # noqa: PLC0415  (as above)

    rows = list(compared(measured, before))
    if not rows:
        say("the two have no step in common")
    step = ""
    for row in rows:
        if row.step != step:
            step = row.step
            say(f"{step}: now, before, ratio")
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        say(f"  {row.words:<40}{number(row.now):>12}{number(row.before):>12}{ratio:>10}")


def write_report(path: Path, measured: "Sequence[Result]", before: "Sequence[Result]") -> None:
    """Write the HTML page."""
    from smq.load.page import page  # noqa: PLC0415  (as above)

    try:
        path.write_text(page(measured, before))
    except OSError as error:
        raise refusal(f"{path} cannot be written: {error.strerror}") from error
