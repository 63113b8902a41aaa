"""/debug/telemetry: the clients that push metrics (KIP-714), as the shards know them.

A push is OpenTelemetry's MetricsData. Listing its metrics requires the protobuf messages (extra
`otel`); its size and time are always shown.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from smq.app.process.asker import Asker
from smq.app.process.inheritance import Inheritance, shard_name, socket_path
from smq.model.errors import ErrorCode
from smq.wire.internal.telemetry import FindPush, ListPushes

CLIENTS_MAX = 1000  # Per shard.
READ_MAX = 20  # Pushes decoded per shard: each may have two megabytes.
NAMES_MAX = 500  # Per push.
MESSAGES = "opentelemetry.proto.metrics.v1.metrics_pb2"


def telemetry(inheritance: Inheritance) -> Callable[[], list[dict[str, Any]]]:
    """The front's page. It raises Unavailable if a shard does not answer."""
    return telemetry_of(inheritance.runtime_dir, inheritance.config.node_ids)


def telemetry_of(runtime_dir: Path, node_ids: range) -> Callable[[], list[dict[str, Any]]]:
    """The page for these nodes of a broker."""

    def page() -> list[dict[str, Any]]:
        return [
            row
            for node_id in node_ids
            for row in _of_shard(node_id, socket_path(runtime_dir, shard_name(node_id)))
        ]

    return page


def _of_shard(node_id: int, path: Path) -> Iterator[dict[str, Any]]:
    asker = Asker(path)
    try:
        clients, _ = asker.ask(ListPushes(CLIENTS_MAX))
        for place, each in enumerate(clients):
            metrics = None
            if each.push_count and place < READ_MAX:
                _, pushed = asker.ask(FindPush(each.instance))
                metrics = read_metrics(pushed)
            error = ErrorCode(each.error).name
            yield {"node": node_id, **each._asdict(), "error": error, "metrics": metrics}
    finally:
        asker.close()


def read_metrics(pushed: bytes) -> Mapping[str, int] | None:
    """The data points of each metric in a push; None if it cannot be decoded here."""
    if find_spec("opentelemetry") is None or find_spec(MESSAGES) is None:
        return None
    from google.protobuf.message import DecodeError  # noqa: PLC0415  (only beside the messages)

    message = import_module(MESSAGES).MetricsData()
    try:
        message.ParseFromString(pushed)
    except DecodeError:
        return None
    points: dict[str, int] = {}
    for resource in message.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.name in points or len(points) < NAMES_MAX:
                    points[metric.name] = points.get(metric.name, 0) + _point_count(metric)
    return points


def _point_count(metric: Any) -> int:  # noqa: ANN401  (a message that may not be installed)
    kind = metric.WhichOneof("data")
    return len(getattr(metric, kind).data_points) if kind else 0
