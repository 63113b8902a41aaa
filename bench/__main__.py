"""`python -m bench`: `smq bench`, and `peers`, which runs a workload on SMQ and on Apache Kafka.

Both brokers run on this machine. Each step runs on one, then on the other, while the one not
measured is suspended; the ratios are printed.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.machine import stopped, touch_free_memory
from bench.run import KAFKA_SETTINGS
from smq.cli import bench as cli
from smq.cli.client import refusal
from smq.testing.kafka import Kafka, KafkaUnavailable
from smq.testing.smq_broker import SmqCommand

if TYPE_CHECKING:
    from smq.testing.processes import Broker

NAMES = {"smq": "SMQ", "kafka": "Apache Kafka"}


@cli.app.command("peers")
def peers(
    workload: cli.Which,
    *,
    given: cli.Given = None,
    find_rate: cli.FindRate = False,
    results: Annotated[Path | None, typer.Option("--results")] = None,
    report: Annotated[Path | None, typer.Option("--report")] = None,
) -> None:
    """Run a workload on a fresh SMQ and on a fresh Apache Kafka, step by step in turns."""
    steps = cli.steps_for(workload, given or [], find_rate=find_rate)
    touch_free_memory()
    taken: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="smq-bench-") as name, ExitStack() as stack:
        directory = Path(name)
        brokers: list[Broker] = [stack.enter_context(SmqCommand(directory / "smq"))]
        try:
            brokers.append(stack.enter_context(Kafka(directory / "kafka", KAFKA_SETTINGS)))
        except KafkaUnavailable as reason:
            raise refusal(f"there is no Apache Kafka to compare with: {reason}") from reason
        for step in steps:
            for broker in brokers:
                others = [pid for other in brokers if other is not broker for pid in other.pids()]
                with stopped(others):
                    result, problem = cli.measured_step(broker.bootstrap, step, NAMES[broker.name])
                if problem:
                    typer.echo(f"{NAMES[broker.name]}: {problem}", err=True)
                taken.setdefault(broker.name, []).append(result)
                cli.keep(results, result)
    typer.echo("SMQ is now, Apache Kafka before")
    cli.say_comparison(taken["smq"], taken["kafka"])
    if report:
        both = [each for pair in zip(taken["smq"], taken["kafka"], strict=True) for each in pair]
        cli.write_report(report, both, [])


if __name__ == "__main__":
    cli.app()
