"""Client quotas: whose they are, and what is refused."""

from typing import Any

from smq.wire.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    QuotaEntity,
    QuotaEntry,
    QuotaOp,
)
from smq.wire.generated.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.oracle.dialogues import dialogue
from tests.oracle.talk import Talk

EXACT, DEFAULT, ANY = range(3)
PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
Part = tuple[str, str | None]


def entry(parts: list[Part], *ops: tuple[str, float | None]) -> QuotaEntry:
    return QuotaEntry(
        entity=[QuotaEntity(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[
            QuotaOp(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in ops
        ],
    )


def trim(answer: Any) -> None:
    """Entries and values come from hash tables; the parts of an entity have an order."""
    for each in answer.entries or ():
        if hasattr(each, "values"):
            each.values = sorted(each.values, key=lambda value: value.key)
    if answer.entries is not None:
        answer.entries = sorted(
            answer.entries,
            key=lambda each: [(part.entity_type, part.entity_name or "") for part in each.entity],
        )


@dialogue("AlterClientQuotas")
def changed(talk: Talk) -> None:
    def ask(step: str, *entries: QuotaEntry, **fields: Any) -> None:
        talk.ask(step, AlterClientQuotasRequest(entries=entries, **fields), trim=trim)

    mine: list[Part] = [("client-id", talk.own())]
    ask("one of a client", entry(mine, (PRODUCE, 1024.0)))
    ask("another, and one less", entry(mine, (CONSUME, 2048.0), (PRODUCE, None)))
    ask("what is not there", entry(mine, (PRODUCE, None)))
    ask("a check", entry(mine, (PRODUCE, 5.0)), validate_only=True)
    ask("of a user with a client", entry([("user", "u"), *mine], ("request_percentage", 0.5)))
    ask("of the default client", entry([("client-id", None)], (PRODUCE, 1e9)))
    ask("of an address", entry([("ip", "10.0.0.1")], ("connection_creation_rate", 10.0)))
    ask("changes of topics", entry(mine, ("controller_mutation_rate", 2.5)))
    ask("no entity", entry([], (PRODUCE, 5.0)))
    ask("an unknown type", entry([("host", "h")], (PRODUCE, 5.0)))
    ask("an empty name", entry([("user", "")], (PRODUCE, 5.0)))
    ask("an address with a user", entry([("ip", "10.0.0.1"), ("user", "u")], (PRODUCE, 5.0)))
    ask("an address that is none", entry([("ip", "1.2.3.4.5")], ("connection_creation_rate", 5.0)))
    ask("an unknown quota", entry(mine, ("coffee_rate", 5.0)))
    ask("a quota of addresses for a client", entry(mine, ("connection_creation_rate", 5.0)))
    ask("a quota of clients for an address", entry([("ip", "10.0.0.1")], (PRODUCE, 5.0)))
    ask("zero", entry(mine, (PRODUCE, 0.0)))
    ask("below zero", entry(mine, (PRODUCE, -1.0)))
    ask("half a byte", entry(mine, (PRODUCE, 0.5)))
    ask("one good, one bad", entry(mine, (PRODUCE, 7.0)), entry(mine[:0], (PRODUCE, 7.0)))
    ask("nothing")
    ask("no changes", entry(mine))
    entities: list[list[Part]] = [mine, [("user", "u"), *mine], [("client-id", None)]]
    for parts in entities:
        keys = PRODUCE, CONSUME, "request_percentage", "controller_mutation_rate"
        talk.quietly(
            AlterClientQuotasRequest(entries=[entry(parts, *((key, None) for key in keys))])
        )
    address = entry([("ip", "10.0.0.1")], ("connection_creation_rate", None))
    talk.quietly(AlterClientQuotasRequest(entries=[address]))


@dialogue("DescribeClientQuotas")
def described(talk: Talk) -> None:
    def ask(step: str, *parts: tuple[str, int, str | None], strict: bool = True) -> None:
        components = [
            ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in parts
        ]
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        talk.ask(step, request, trim=trim)

    def change(value: float | None) -> None:
        entries = [
            entry([("client-id", "a")], (PRODUCE, value)),
            entry([("client-id", None)], (PRODUCE, value), (CONSUME, value)),
            entry([("user", "u"), ("client-id", "a")], (PRODUCE, value)),
            entry([("user", "u")], (PRODUCE, value)),
            entry([("ip", None)], ("connection_creation_rate", value)),
        ]
        talk.quietly(AlterClientQuotasRequest(entries=entries))

    def count(answer: Any) -> bool:
        return len(answer.entries) == 5

    change(4096.0)
    talk.until(DescribeClientQuotasRequest(components=[], strict=False), count, 1)
    ask("all", strict=False)
    ask("none, strictly")
    ask("a client", ("client-id", EXACT, "a"))
    ask("a client with whatever", ("client-id", EXACT, "a"), strict=False)
    ask("the default client", ("client-id", DEFAULT, None))
    ask("any client", ("client-id", ANY, None))
    ask("any client of any user", ("client-id", ANY, None), ("user", ANY, None))
    ask("any address", ("ip", ANY, None), strict=False)
    ask("an unknown client", ("client-id", EXACT, "b"))
    ask("a type twice", ("user", EXACT, "a"), ("user", EXACT, "b"))
    ask("an unknown type", ("host", EXACT, "h"))
    ask("an empty type", ("", EXACT, "h"))
    ask("an unknown match", ("user", 9, None))
    ask("exactly nothing", ("user", EXACT, None))
    ask("a default with a name", ("user", DEFAULT, "u"))
    ask("any with a name", ("user", ANY, "u"))
    ask("an address with a user", ("ip", ANY, None), ("user", ANY, None))
    change(None)
    talk.until(
        DescribeClientQuotasRequest(components=[], strict=False),
        lambda answer: not answer.entries,
        1,
    )
