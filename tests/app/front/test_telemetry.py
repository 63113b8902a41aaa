"""The page of clients that push metrics: which metrics are in a push, where that can be read."""

import pytest

from smq.app.front import telemetry as module
from smq.app.front.telemetry import read_metrics

metrics_pb2 = pytest.importorskip(module.MESSAGES)


def test_the_data_points_of_each_metric_are_counted() -> None:
    data = metrics_pb2.MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    summed = metrics.add(name="a")
    summed.sum.data_points.add(as_int=1)
    summed.sum.data_points.add(as_int=2)
    metrics.add(name="b").gauge.data_points.add(as_double=0.5)
    metrics.add(name="empty")
    assert read_metrics(data.SerializeToString()) == {"a": 2, "b": 1, "empty": 0}
    assert read_metrics(b"") == {}


def test_garbage_is_not_read() -> None:
    assert read_metrics(b"\xff" * 100) is None


def test_without_the_messages_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MESSAGES", "opentelemetry.no_such_thing")
    assert read_metrics(b"") is None
