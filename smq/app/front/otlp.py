"""Exports metrics by OTLP over HTTP, for collectors that do not scrape: the extra `otel`.

The library's own thread collects and sends them every `otlp.interval.ms`, so a collector that hangs
delays nothing else. The export has sums over each topic and each group's lag in it; metrics of
single partitions exist only in /metrics.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from smq.front.metrics.facts import Facts
from smq.front.metrics.page import few, sums
from smq.model.printable import say_error
from smq.model.urls import hide, parts_of_url

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider

ANSWER_S_MAX = 5.0
MISSING = (
    "otlp.endpoint is set, but OpenTelemetry is not installed: nothing is sent to it; "
    "`pip install 'smq-broker[otel]'`"
)

Sample = tuple[Mapping[str, str], float]
Series = Mapping[str, tuple[bool, str, Sequence[Sample]]]
"""By name: whether it only rises, what it is, its samples."""


def is_installed() -> bool:
    """Whether the extra is installed."""
    return find_spec("opentelemetry") is not None and (
        find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    )


def series_of(facts: Facts) -> Series:
    """The exported series. A histogram is exported as its count and its sum."""
    found: dict[str, tuple[bool, str, list[Sample]]] = {}
    for family in few(facts):
        is_counter = family.type in {"counter", "histogram"}
        for sample in family.samples:
            if sample.name.endswith(("_bucket", "_created")):
                continue
            row = found.setdefault(sample.name, (is_counter, family.documentation, []))
            row[2].append((sample.labels, float(sample.value)))
    for name, words, rows in sums(facts):
        found[name] = (False, words, [(labels, float(value)) for labels, value in rows])
    return found


class Said(logging.Handler):
    """Says the library's errors in one line each, without what the endpoint may hold in secret."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = endpoint

    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        kind = f" ({record.exc_info[0].__name__})" if record.exc_info and record.exc_info[0] else ""
        said = hide(record.getMessage(), parts_of_url(self._endpoint))
        say_error(f"front: otlp.endpoint: {said}{kind}")


def start_sending(
    endpoint: str, interval_ms: int, cluster_id: str, look: Callable[[], Facts]
) -> "MeterProvider":
    """Start exporting; `shutdown()` of the result stops it. `look` is called from any thread."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415  (an extra)
        OTLPMetricExporter,
    )
    from opentelemetry.metrics import Observation  # noqa: PLC0415  (as above)
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415  (as above)
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415  (as above)
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  (as above)

    log = logging.getLogger("opentelemetry")
    log.setLevel(logging.ERROR)
    log.handlers, log.propagate = [Said(endpoint)], False
    exporter = OTLPMetricExporter(endpoint=endpoint, timeout=ANSWER_S_MAX)
    reader = PeriodicExportingMetricReader(
        exporter, export_interval_millis=interval_ms, export_timeout_millis=1000 * ANSWER_S_MAX
    )
    first = look()
    resource = {"service.name": "smq", "service.version": first.version, "smq.cluster": cluster_id}
    provider = MeterProvider([reader], Resource.create(resource))
    meter = provider.get_meter("smq")

    def observe(name: str) -> Callable[[Any], Iterable[Any]]:
        def observed(_options: Any) -> Iterable[Any]:  # noqa: ANN401  (the library's)
            _, _, samples = series_of(look()).get(name, (False, "", ()))
            return [Observation(value, dict(labels)) for labels, value in samples]

        return observed

    for name, (is_counter, words, _) in series_of(first).items():
        make = meter.create_observable_counter if is_counter else meter.create_observable_gauge
        make(name, callbacks=[observe(name)], description=words)
    return provider
