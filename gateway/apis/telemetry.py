"""GetTelemetrySubscriptions (key 71) and PushTelemetry (key 72), version 0 (KIP-714).

- A client learns which metrics to push and how often, from the `client-metrics` configs that match
  it, and gets a client instance id if it has none. Without subscriptions it pushes nothing.
- THROTTLING_QUOTA_EXCEEDED for a request within the interval; UNKNOWN_SUBSCRIPTION_ID once the
  subscriptions have changed; UNSUPPORTED_COMPRESSION_TYPE; TELEMETRY_TOO_LARGE above a megabyte, or
  two inflated; INVALID_RECORD for metrics that cannot be inflated; INVALID_REQUEST for an unknown
  client id, and after a client's terminating push.
- The newest push of each client is kept: smq.shard.client_metrics.
"""

from functools import partial

from gateway.context import Ask, Later, ShardContext
from smq.log.files.background import JobLane
from smq.model.errors import BrokerError, ErrorCode
from smq.shard.client_metrics import TELEMETRY_BYTES_MAX, KeptPush, Push, kept_of
from smq.wire.compression import Codec
from smq.wire.generated.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from smq.wire.generated.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

COMPRESSIONS = Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY


def subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: ShardContext
) -> GetTelemetrySubscriptionsResponse:
    """Tell a client what to push."""
    client = context.header.client_id or "", context.caller
    try:
        instance = context.shard.client_metrics.subscribe(
            request.client_instance_id, *client, context.now.monotonic_ms
        )
    except BrokerError as refusal:
        return GetTelemetrySubscriptionsResponse(error_code=refusal.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(each) for each in COMPRESSIONS],
        push_interval_ms=instance.wanted.interval_ms,
        telemetry_max_bytes=TELEMETRY_BYTES_MAX,
        delta_temporality=True,
        requested_metrics=list(instance.wanted.metrics),
    )


def push(request: PushTelemetryRequest, context: ShardContext) -> PushTelemetryResponse | Ask:
    """Keep a client's push or refuse it; what is compressed is inflated in a lane."""
    metrics, client = context.shard.client_metrics, (context.header.client_id or "", context.caller)
    pushed = Push(
        request.subscription_id,
        request.terminating,
        request.compression_type,
        bytes(request.metrics),
    )
    try:
        instance = metrics.begin_push(
            request.client_instance_id, *client, pushed, context.now.monotonic_ms
        )
    except BrokerError as refusal:
        return PushTelemetryResponse(error_code=refusal.code)

    def end(answers: list[KeptPush | ErrorCode]) -> PushTelemetryResponse:
        [kept] = answers
        try:
            metrics.end_push(instance, pushed, kept)
        except BrokerError as refusal:
            return PushTelemetryResponse(error_code=refusal.code)
        return PushTelemetryResponse()

    if pushed.compression == Codec.NONE:
        return end([kept_of(pushed)])
    log = next(iter(context.shard.logs.values()))
    job = partial(kept_of, pushed)
    return Ask([Later(lambda done: log.background.submit(JobLane.CHECKS, job, done))], end)
