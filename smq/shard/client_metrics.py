"""The metrics that clients push (KIP-714): each client's subscription and its newest push.

A subscription's id is a hash of the client and of the metrics it is to push: every shard gives it
the same id, and another when the subscriptions change. All of this is bounded and in memory only;
the client that has been silent for longest is forgotten first.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple
from uuid import UUID, uuid4

from smq.model.client_metrics import ClientFacts, Subscription, WantedMetrics, wanted_of
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.security.caller import Caller
from smq.wire.compression import Codec, InflatesTooFar, compress, decompress

TELEMETRY_BYTES_MAX = 1024 * 1024  # Kafka's default of telemetry.max.bytes.
INFLATED_BYTES_MAX = 2 * 1024 * 1024  # Of zstd that takes a few milliseconds in the shard's loop.
INSTANCES_MAX = 16_384  # As Kafka.
PUSHED_BYTES_MAX = 16 * 1024 * 1024  # All newest pushes together, as they are kept.
SILENCE_MS_MIN = 60_000
RESERVED = frozenset({UUID(int=0), UUID(int=1)})  # Kafka's reserved ids.
_ASKS_AGAIN = {ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}


class Push(NamedTuple):
    """What a client pushes."""

    subscription_id: int
    is_last: bool
    compression: int
    metrics: bytes


class KeptPush(NamedTuple):
    """What is kept of a push: its bytes, of zstd unless it came uncompressed."""

    compression: int
    metrics: bytes
    inflated_bytes: int


@dataclass(slots=True)
class Instance:
    """A client that asks for subscriptions or pushes. Times are 0 until then."""

    id: UUID
    client: ClientFacts
    wanted: WantedMetrics
    version: int
    subscribed_ms: int = 0
    push_ms: int = 0
    seen_ms: int = 0
    is_terminating: bool = False
    error: ErrorCode = ErrorCode.NONE
    push_count: int = 0
    pushed_bytes: int = 0
    inflated_bytes: int = 0

    @property
    def subscription_id(self) -> int:
        """A signed number of 32 bits."""
        said = repr((self.wanted, self.id.hex)).encode()
        return int.from_bytes(zlib.crc32(said).to_bytes(4), signed=True)

    def is_silent(self, now_ms: int) -> bool:
        """Whether it has been silent for so long that it starts afresh, as in Kafka."""
        return now_ms - self.seen_ms > max(SILENCE_MS_MIN, 3 * self.wanted.interval_ms)


_NOTHING = KeptPush(Codec.NONE, b"", 0)


class ClientMetrics:
    """The clients of a shard that push metrics, or have asked to."""

    def __init__(self, new_id: Callable[[], UUID] = uuid4) -> None:
        self._new_id = new_id
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self._subscriptions: list[Subscription] = []
        self._version = 0
        # By the bytes of ids: clients choose these, and the hash of a UUID has no secret.
        self._instances: dict[bytes, Instance] = {}  # Least recently seen first.
        self._pushed: dict[bytes, KeptPush] = {}  # The newest is last.
        self._pushed_bytes = 0

    def take(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Use these subscriptions from now on, except invalid ones that another version
        accepted."""
        if configs != self._configs:
            self._configs = configs
            self._subscriptions = []
            for each in configs.values():
                with suppress(ValueError):
                    self._subscriptions.append(Subscription.of(each))
            self._version += 1

    @property
    def are_wanted(self) -> bool:
        """Whether there is a subscription."""
        return bool(self._subscriptions)

    def subscribe(self, instance_id: UUID, client_id: str, caller: Caller, now_ms: int) -> Instance:
        """Return what a client must push; give it an id if it has none. Raises BrokerError."""
        named = instance_id if instance_id.int else self._new_id()
        instance = self._instance(named, client_id, caller, now_ms)
        last_ms = max(instance.subscribed_ms, instance.push_ms)
        is_early = now_ms - last_ms < instance.wanted.interval_ms
        if is_early and instance.error not in _ASKS_AGAIN:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if not is_early:
            instance.subscribed_ms = now_ms
        instance.error = ErrorCode.NONE
        return instance

    def begin_push(
        self, instance_id: UUID, client_id: str, caller: Caller, push: Push, now_ms: int
    ) -> Instance:
        """Check what a client pushes; end_push() follows. Raises BrokerError."""
        if instance_id in RESERVED:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        instance = self._instance(instance_id, client_id, caller, now_ms)
        try:
            _check(instance, push, now_ms)
        except BrokerError as refusal:
            instance.error = refusal.code
            raise
        finally:
            instance.is_terminating = push.is_last
        return instance

    def end_push(self, instance: Instance, push: Push, kept: KeptPush | ErrorCode) -> None:
        """Keep a push, as kept_of() made it, in place of the one before. Raises BrokerError."""
        is_known = self._instances.get(instance.id.bytes) is instance
        if isinstance(kept, KeptPush) and not is_known:  # Its subscription has changed meanwhile.
            kept = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        instance.error = kept if isinstance(kept, ErrorCode) else ErrorCode.NONE
        if isinstance(kept, ErrorCode):
            raise BrokerError(kept)
        if push.metrics:
            instance.push_count += 1
            instance.pushed_bytes, instance.inflated_bytes = len(push.metrics), kept.inflated_bytes
            self._forget(instance.id.bytes)
            self._pushed[instance.id.bytes] = kept
            self._pushed_bytes += len(kept.metrics)
            while self._pushed_bytes > PUSHED_BYTES_MAX:
                self._forget(next(iter(self._pushed)))

    def newest(self, count_max: int) -> Iterable[Instance]:
        """The most recently seen clients, newest first."""
        return islice(reversed(self._instances.values()), count_max)

    def metrics_of(self, instance_id: UUID) -> bytes:
        """The newest push of a client, inflated; b"" if there is none or it is forgotten."""
        kept = self._pushed.get(instance_id.bytes, _NOTHING)
        return bytes(decompress(kept.compression, kept.metrics, INFLATED_BYTES_MAX))

    def _instance(self, instance_id: UUID, client_id: str, caller: Caller, now_ms: int) -> Instance:
        found = self._instances.pop(instance_id.bytes, None)
        if found is None or found.version != self._version or found.is_silent(now_ms):
            client = ClientFacts(
                str(instance_id),
                client_id,
                caller.software_name,
                caller.software_version,
                caller.host,
                str(caller.port),
            )
            wanted = wanted_of(self._subscriptions, client)
            found = Instance(instance_id, client, wanted, self._version)
        found.seen_ms = now_ms
        self._instances[instance_id.bytes] = found
        if len(self._instances) > INSTANCES_MAX:
            oldest = next(iter(self._instances))
            del self._instances[oldest]
            self._forget(oldest)
        return found

    def _forget(self, key: bytes) -> None:
        self._pushed_bytes -= len(self._pushed.pop(key, _NOTHING).metrics)


def _check(instance: Instance, push: Push, now_ms: int) -> None:
    """Refuse a push that comes too soon or is invalid."""
    if instance.is_terminating:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    # The first push after a subscription may come at once: clients spread theirs.
    is_first = instance.subscribed_ms > instance.push_ms
    if is_first or now_ms - instance.push_ms >= instance.wanted.interval_ms:
        instance.push_ms = now_ms
    elif not push.is_last:
        raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    if push.subscription_id != instance.subscription_id:
        raise BrokerError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    if push.compression not in set(Codec):
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if len(push.metrics) > TELEMETRY_BYTES_MAX:
        raise BrokerError(ErrorCode.TELEMETRY_TOO_LARGE)


def kept_of(push: Push) -> KeptPush | ErrorCode:
    """What is kept of a push, or why it is refused.

    What is compressed takes up to some 0.2 s: it may be of a hundred thousand frames or blocks, so
    this is work for a lane. It is kept as one frame of zstd.
    """
    if not push.metrics or push.compression == Codec.NONE:
        return KeptPush(Codec.NONE, push.metrics, len(push.metrics))
    try:
        inflated = bytes(decompress(push.compression, push.metrics, INFLATED_BYTES_MAX))
    except InflatesTooFar:
        return ErrorCode.TELEMETRY_TOO_LARGE
    except PeerError:
        return ErrorCode.INVALID_RECORD
    return KeptPush(Codec.ZSTD, compress(Codec.ZSTD, inflated), len(inflated))
