"""GetTelemetrySubscriptions and PushTelemetry on the wire."""

from pathlib import Path
from uuid import UUID

from smq.model.errors import ErrorCode
from smq.wire.generated.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from smq.wire.generated.push_telemetry import PushTelemetryRequest
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic


def test_a_client_learns_what_to_push_and_pushes_it(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path, topic("t"))
    bench.shard.client_metrics.take({"s": {"metrics": "a.,b.", "interval.ms": "60000"}})
    asked = GetTelemetrySubscriptionsRequest(client_instance_id=UUID(int=0))
    told = bench.ask("GetTelemetrySubscriptions", 0, asked)
    assert told.error_code == ErrorCode.NONE
    assert told.client_instance_id.int
    assert list(told.accepted_compression_types) == [4, 3, 1, 2]
    assert list(told.requested_metrics) == ["a.", "b."]
    assert (told.push_interval_ms, told.telemetry_max_bytes) == (60_000, 1024 * 1024)

    pushed = PushTelemetryRequest(
        client_instance_id=told.client_instance_id,
        subscription_id=told.subscription_id,
        metrics=b"metrics",
    )
    assert bench.ask("PushTelemetry", 0, pushed).error_code == ErrorCode.NONE
    assert bench.shard.client_metrics.metrics_of(told.client_instance_id) == b"metrics"
    early = bench.ask("PushTelemetry", 0, pushed)
    assert early.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    asked = GetTelemetrySubscriptionsRequest(client_instance_id=told.client_instance_id)
    answer = bench.ask("GetTelemetrySubscriptions", 0, asked)
    assert answer.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
