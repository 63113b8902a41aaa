"""Metrics reach a collector that speaks OTLP over HTTP."""

import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from smq.app.front.otlp import Said, is_installed, series_of, start_sending
from smq.front.metrics.facts import BOUNDS_S, ApiTimes, Facts, GroupOffset, ProcessFacts
from tests.app.fake_broker import eventually

FACTS = Facts(
    version="1",
    is_ready=True,
    started_ms=0,
    processes=[ProcessFacts("shard-1", True, 2, 1.5)],
    offsets=[GroupOffset("g", "t", n, 3, 2, 0.0) for n in range(2)],
    times=[ApiTimes("Fetch", (1,) * len(BOUNDS_S), 4, 0.5)],
)


def test_counters_gauges_and_sums_over_topics_are_sent() -> None:
    series = series_of(FACTS)
    assert series["smq_ready"] == (False, "Whether all processes serve.", [({}, 1.0)])
    is_counter, _, samples = series["smq_process_restarts_total"]
    assert is_counter
    assert list(samples) == [({"process": "shard-1"}, 2.0)]
    assert series["smq_request_seconds_count"][2] == [({"api": "Fetch"}, 4.0)]
    lag = series["kafka_consumergroup_lag_sum"][2]
    assert lag == [({"consumergroup": "g", "topic": "t"}, 4.0)]
    assert not any(name.endswith("_bucket") for name in series)


class Collector(HTTPServer):
    """Keeps the bodies that were posted to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Keeping)
        self.bodies: list[bytes] = []


class Keeping(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_logged_export_failure_names_no_secret(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Door fault 7: it repeats the endpoint, in a traceback too."""
    said_of = "Max retries exceeded with url: /v1/metrics?token=s3cret"
    failure = (ValueError, ValueError(said_of), None)
    record = logging.LogRecord("otlp", logging.ERROR, "", 1, "failed: %s", (said_of,), failure)
    Said("http://u:s3cret@127.0.0.1:1/v1/metrics?token=s3cret").emit(record)
    said = capsys.readouterr().err
    assert "front: otlp.endpoint: failed: Max retries exceeded" in said
    assert "s3cret" not in said
    assert said.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(not is_installed(), reason="pip install 'smq-broker[otel]'")
@pytest.mark.filterwarnings("default")  # Of the library, about itself.
def test_a_collector_gets_them_by_the_librarys_own_encoding(collector: Collector) -> None:
    import gzip  # noqa: PLC0415

    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (  # noqa: PLC0415
        ExportMetricsServiceRequest,
    )

    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/metrics"
    provider = start_sending(endpoint, 200, "cluster", lambda: FACTS)
    try:
        eventually(lambda: bool(collector.bodies), "something is sent")
    finally:
        provider.shutdown()
    body = collector.bodies[0]
    request: Any = ExportMetricsServiceRequest()
    request.ParseFromString(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
    [resource] = request.resource_metrics
    names = {metric.name for scope in resource.scope_metrics for metric in scope.metrics}
    assert {"smq_ready", "smq_process_restarts_total", "kafka_consumergroup_lag_sum"} <= names
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert attributes["smq.cluster"] == "cluster"
