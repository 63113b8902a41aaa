"""GetTelemetrySubscriptions and PushTelemetry (KIP-714)."""

from typing import Any
from uuid import UUID

from smq.wire.compression import Codec, compress
from smq.wire.generated.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from smq.wire.generated.push_telemetry import PushTelemetryRequest
from tests.oracle.dialogues import dialogue
from tests.oracle.talk import Talk

NOBODY = UUID(int=0)


@dialogue("GetTelemetrySubscriptions")
def without_subscriptions(talk: Talk) -> None:
    def ask(step: str, instance: UUID) -> None:
        talk.ask(step, GetTelemetrySubscriptionsRequest(client_instance_id=instance))

    ask("a new client", NOBODY)
    ask("another one", NOBODY)
    known = UUID(int=0x71_0000 + talk.version)
    ask("with an id", known)
    ask("too early", known)


@dialogue("PushTelemetry")
def without_a_subscription(talk: Talk) -> None:
    def push(step: str, number: int, **fields: Any) -> None:
        request = PushTelemetryRequest(
            client_instance_id=UUID(int=number), subscription_id=7, **fields
        )
        talk.ask(step, request)

    push("a client that is none", 0)
    push("a reserved one", 1)
    push("an unknown subscription", 0x72_0000)
    push("too early", 0x72_0000)
    push("the last one is never too early", 0x72_0000, terminating=True)
    push("after the last one", 0x72_0000)
    push("an unknown compression", 0x72_0001, compression_type=9)


@dialogue("PushTelemetry")
def subscribed(talk: Talk) -> None:
    instances = iter(range(0x72_1000, 0x72_2000))

    def push(step: str, codec: int, metrics: bytes, *, is_last: bool = False) -> UUID:
        instance = UUID(int=next(instances))
        asked = GetTelemetrySubscriptionsRequest(client_instance_id=instance)
        subscription_id = talk.quietly(asked, 0).subscription_id
        request = PushTelemetryRequest(
            client_instance_id=instance,
            subscription_id=subscription_id,
            terminating=is_last,
            compression_type=codec,
            metrics=metrics,
        )
        talk.ask(step, request)
        return instance

    push("nothing", Codec.NONE, b"")
    for codec in Codec:
        push(f"by {codec.name}", codec, compress(codec, b"metrics" * 100))
    push("an unknown compression", 9, b"metrics")
    push("as large as can be", Codec.NONE, bytes(1024 * 1024))
    push("too large", Codec.NONE, bytes(1024 * 1024 + 1))
    push("the last one", Codec.NONE, b"metrics", is_last=True)
