"""Clients that push metrics: subscriptions, throttling, errors, and kept pushes."""

import zlib
from uuid import UUID

import pytest

from smq.model.errors import BrokerError, ErrorCode
from smq.security.caller import Caller
from smq.shard import client_metrics as module
from smq.shard.client_metrics import (
    INFLATED_BYTES_MAX,
    SILENCE_MS_MIN,
    TELEMETRY_BYTES_MAX,
    ClientMetrics,
    Instance,
    KeptPush,
    Push,
    kept_of,
)
from smq.wire.compression import Codec, compress

E = ErrorCode
NEW, ONE, INTERVAL_MS, NOW_MS = UUID(int=0), UUID(int=100), 1000, 1_600_000_000_000
SUBSCRIPTION = {"metrics": "a.", "interval.ms": str(INTERVAL_MS), "match": "client_id=app"}
CLIENT = "app", Caller("10.0.0.9")


@pytest.fixture
def metrics() -> ClientMetrics:
    made = iter(range(1000, 2000))
    found = ClientMetrics(lambda: UUID(int=next(made)))
    found.take({"s": SUBSCRIPTION})
    return found


def subscribed(metrics: ClientMetrics, instance: UUID = ONE, now_ms: int = NOW_MS) -> Instance:
    return metrics.subscribe(instance, *CLIENT, now_ms)


def keep(metrics: ClientMetrics, instance_id: UUID, pushed: Push, now_ms: int) -> None:
    instance = metrics.begin_push(instance_id, *CLIENT, pushed, now_ms)
    metrics.end_push(instance, pushed, kept_of(pushed))


def push(
    metrics: ClientMetrics,
    data: bytes = b"data",
    now_ms: int = NOW_MS,
    codec: int = Codec.NONE,
    **fields: object,
) -> ErrorCode:
    """The error of a push by the client ONE, which knows its subscription."""
    known = ClientMetrics()
    known.take({"s": SUBSCRIPTION})
    said = {"subscription_id": subscribed(known).subscription_id, "is_last": False} | fields
    try:
        pushed = Push(compression=codec, metrics=data, **said)  # type: ignore[arg-type]
        keep(metrics, ONE, pushed, now_ms)
    except BrokerError as refusal:
        return refusal.code
    return E.NONE


def test_a_client_without_an_id_gets_one_and_its_subscription(metrics: ClientMetrics) -> None:
    first, second = subscribed(metrics, NEW), subscribed(metrics, NEW)
    assert (first.id, second.id) == (UUID(int=1000), UUID(int=1001))
    assert first.wanted == (("a.",), INTERVAL_MS)
    assert first.subscription_id != second.subscription_id
    assert metrics.subscribe(NEW, "other", Caller("10.0.0.9"), NOW_MS).wanted.metrics == ()


def test_an_early_request_is_throttled(metrics: ClientMetrics) -> None:
    subscribed(metrics)
    with pytest.raises(BrokerError) as refusal:
        subscribed(metrics, now_ms=NOW_MS + INTERVAL_MS - 1)
    assert refusal.value.code == E.THROTTLING_QUOTA_EXCEEDED
    subscribed(metrics, now_ms=NOW_MS + INTERVAL_MS)


def test_a_push_may_follow_at_once_and_then_once_an_interval(metrics: ClientMetrics) -> None:
    subscribed(metrics)
    assert push(metrics, now_ms=NOW_MS + 1) == E.NONE
    assert push(metrics, now_ms=NOW_MS + INTERVAL_MS) == E.THROTTLING_QUOTA_EXCEEDED
    assert push(metrics, now_ms=NOW_MS + INTERVAL_MS + 1) == E.NONE
    assert push(metrics, b"last", NOW_MS + INTERVAL_MS + 2, is_last=True) == E.NONE
    assert push(metrics, now_ms=NOW_MS + 9 * INTERVAL_MS) == E.INVALID_REQUEST
    [instance] = metrics.newest(9)
    assert (instance.push_count, instance.pushed_bytes) == (3, 4)
    assert metrics.metrics_of(ONE) == b"last"


def test_another_shard_knows_the_subscription_too(metrics: ClientMetrics) -> None:
    assert push(metrics) == E.NONE


def test_a_changed_subscription_is_asked_for_again_at_once(metrics: ClientMetrics) -> None:
    assert push(metrics) == E.NONE
    metrics.take({"s": SUBSCRIPTION | {"metrics": "b."}})
    assert push(metrics, now_ms=NOW_MS + 1) == E.UNKNOWN_SUBSCRIPTION_ID
    assert subscribed(metrics, now_ms=NOW_MS + 2).wanted.metrics == ("b.",)


@pytest.mark.parametrize(
    ("codec", "data", "error"),
    [
        (9, b"data", E.UNSUPPORTED_COMPRESSION_TYPE),
        (-1, b"data", E.UNSUPPORTED_COMPRESSION_TYPE),
        (Codec.NONE, bytes(TELEMETRY_BYTES_MAX), E.NONE),
        (Codec.NONE, bytes(TELEMETRY_BYTES_MAX + 1), E.TELEMETRY_TOO_LARGE),
        (Codec.GZIP, zlib.compress(bytes(INFLATED_BYTES_MAX + 1), wbits=31), E.TELEMETRY_TOO_LARGE),
        (Codec.GZIP, b"garbage", E.INVALID_RECORD),
        (Codec.SNAPPY, b"garbage", E.INVALID_RECORD),
        (Codec.LZ4, b"garbage", E.INVALID_RECORD),
        (Codec.ZSTD, b"garbage", E.INVALID_RECORD),
    ],
)
def test_a_push_that_cannot_be_kept_is_refused(
    metrics: ClientMetrics, codec: int, data: bytes, error: ErrorCode
) -> None:
    assert push(metrics, data, codec=codec) == error
    assert metrics.metrics_of(ONE) == (b"" if error else data)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_push_is_read_inflated(metrics: ClientMetrics, codec: Codec) -> None:
    data = b"data" * 1000
    assert push(metrics, compress(codec, data), codec=codec) == E.NONE
    assert metrics.metrics_of(ONE) == data
    [instance] = metrics.newest(1)
    assert instance.pushed_bytes == len(compress(codec, data))
    assert instance.inflated_bytes == len(data)


def test_a_push_of_many_frames_is_kept_as_one() -> None:
    """data fault 11: a megabyte of empty frames took 0.7 s of the loop at each look at it."""
    frames = compress(Codec.GZIP, b"") * 50_000
    kept = kept_of(Push(1, is_last=False, compression=Codec.GZIP, metrics=frames))
    assert isinstance(kept, KeptPush)
    assert (kept.compression, kept.inflated_bytes) == (Codec.ZSTD, 0)
    assert len(kept.metrics) < 100


def test_a_push_whose_subscription_changes_while_it_is_inflated_is_refused(
    metrics: ClientMetrics,
) -> None:
    subscription_id = subscribed(metrics).subscription_id
    pushed = Push(subscription_id, is_last=False, compression=Codec.NONE, metrics=b"data")
    instance = metrics.begin_push(ONE, *CLIENT, pushed, NOW_MS)
    metrics.take({"s": SUBSCRIPTION | {"metrics": "b."}})
    subscribed(metrics, now_ms=NOW_MS + INTERVAL_MS)
    with pytest.raises(BrokerError, match="UNKNOWN_SUBSCRIPTION_ID"):
        metrics.end_push(instance, pushed, kept_of(pushed))
    assert metrics.metrics_of(ONE) == b""


def test_a_subscription_that_only_another_version_understands_is_left_out() -> None:
    metrics = ClientMetrics()
    metrics.take({"s": SUBSCRIPTION, "other": {"metrics": "b.", "match": "colour=red"}})
    assert subscribed(metrics).wanted.metrics == ("a.",)


def test_ids_that_no_client_has_are_refused(metrics: ClientMetrics) -> None:
    for number in (0, 1):
        with pytest.raises(BrokerError) as refusal:
            keep(metrics, UUID(int=number), Push(7, False, 0, b""), NOW_MS)
        assert refusal.value.code == E.INVALID_REQUEST


def test_a_silent_client_starts_afresh(metrics: ClientMetrics) -> None:
    assert push(metrics, is_last=True) == E.NONE
    assert push(metrics, now_ms=NOW_MS + SILENCE_MS_MIN) == E.INVALID_REQUEST
    assert push(metrics, now_ms=NOW_MS + 2 * SILENCE_MS_MIN + 1) == E.NONE


def test_the_clients_and_the_pushes_that_are_oldest_are_forgotten(
    metrics: ClientMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 3)
    monkeypatch.setattr(module, "PUSHED_BYTES_MAX", 10)
    for number in range(100, 105):
        instance = subscribed(metrics, UUID(int=number))
        pushed = Push(instance.subscription_id, is_last=False, compression=0, metrics=b"12345")
        keep(metrics, instance.id, pushed, NOW_MS)
    assert [each.id.int for each in metrics.newest(9)] == [104, 103, 102]
    kept = [number for number in range(100, 105) if metrics.metrics_of(UUID(int=number))]
    assert kept == [103, 104]
