"""The parts of a table of loads: what each runs, with which settings, and the lines it gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from bench.clients.programs import ClientFailed
from bench.measures.lines import Figures, Line
from smq.cli.bench import measured_step, steps_for
from smq.testing.processes import Broker


@dataclass
class Run:
    """How much is measured."""

    gb: float
    quick: bool
    directory: Path

    def seconds(self, full: float) -> float:
        return full / 5 if self.quick else full

    def step(self, broker: Broker, workload: str, **fields: object) -> Mapping[str, Any]:
        """The result of one step of a workload of `smq bench`. Raises ClientFailed."""
        minutes = {"testDurationMinutes": self.seconds(30) / 60}
        given = [f"{name}={value}" for name, value in (minutes | fields).items()]
        [step] = steps_for(workload, given)
        result, problem = measured_step(broker.bootstrap, step, broker.name)
        if problem:
            raise ClientFailed(problem)
        return result

    def p99_us(self, broker: Broker, figure: str, workload: str, **fields: object) -> float:
        """A 99th percentile of such a step."""
        return self.percentile_us(broker, "p99", workload, figure, **fields)

    def percentile_us(
        self, broker: Broker, percentile: str, workload: str, figure: str, **fields: object
    ) -> float:
        """A percentile of such a step."""
        return float(self.step(broker, workload, **fields)["latency_us"][figure][percentile])


class Part(NamedTuple):
    """What is run, with which settings of SMQ, and the lines that come of it."""

    name: str
    run: Callable[[Run, Broker], Figures]
    lines: tuple[Line, ...]
    settings: Mapping[str, str] = MappingProxyType({})
    with_kafka: bool = True
