"""Configs of topics, brokers, groups and client metrics; quotas."""

from typing import Any

from smq.wire.generated.alter_client_quotas import AlterClientQuotasRequest
from smq.wire.generated.alter_configs import (
    AlterableConfig as OldConfig,
    AlterConfigsRequest,
    AlterConfigsResource as OldResource,
)
from smq.wire.generated.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from smq.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from smq.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from smq.wire.generated.list_config_resources import ListConfigResourcesRequest
from tests.oracle.dialogues.quotas import ANY, PRODUCE, entry
from tests.oracle.rights import asked
from tests.oracle.rights.cell import EXISTING, Cell

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET = 0
OF_TOPIC, OF_BROKER = "retention.ms", "message.max.bytes"
OF_GROUP = "no.such"  # What a group has for configs is another matter.
DESCRIBE, ALTER = 4, 1
BARRIER = "retention.bytes"

# What has configs besides topics: a step's name, the type, the name, a config, a value.
OTHERS = (
    ("the broker", BROKER, "1", OF_BROKER, "1000000"),
    ("all brokers", BROKER, "", OF_BROKER, "1000000"),
    ("loggers", LOGGER, "1", "kafka", "WARN"),
    ("client metrics", METRICS, "allowed", "interval.ms", "100000"),
    ("the group allowed", GROUP, "allowed", OF_GROUP, "1"),
    ("the group denied", GROUP, "denied", OF_GROUP, "1"),
    ("a type that is none", 99, "x", "x", "1"),
)


def named(cell: Cell, kind: int, name: str) -> str:
    return cell.own(name) if kind in {GROUP, METRICS} else name


def describing(*resources: tuple[int, str, str]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=[config]
            )
            for kind, name, config in resources
        ]
    )


def kept_short(answer: Any) -> None:
    """Which configs came, not what they are."""
    for each in answer.results:
        each.configs = [config for config in each.configs if config.name == OF_TOPIC]
        for config in each.configs:
            config.value = None


@asked("DescribeConfigs")
def described(cell: Cell) -> None:
    topics = [(TOPIC, each, OF_TOPIC) for each in cell.all()]
    cell.ask("all topics", describing(*topics), trim=kept_short)
    for step, kind, name, config, _ in OTHERS:
        cell.ask(step, describing((kind, named(cell, kind, name), config)), trim=kept_short)
    mixed = [(TOPIC, cell.own("allowed"), OF_TOPIC), (BROKER, "1", OF_BROKER)]
    cell.ask("a topic and the broker", describing(*mixed), trim=kept_short)


def moved(cell: Cell, step: str, value: str) -> None:
    """Whose config has this value now: once another change, made after it, is known."""
    later = str(10**9 + 1000 * cell.turn + cell.version)
    name = cell.own("allowed")
    cell.quietly(altering((TOPIC, name, BARRIER, later)), ALTER)
    seen = describing((TOPIC, name, BARRIER))
    cell.until(seen, lambda answer: bool(answer.results[0].configs[0].value == later), DESCRIBE)
    rows = describing(*((TOPIC, cell.own(word), OF_TOPIC) for word in EXISTING))
    now = {
        each.resource_name: each.configs[0].value for each in cell.quietly(rows, DESCRIBE).results
    }
    cell.note(f"{step}: changed", [word for word in EXISTING if now[cell.own(word)] == value])


def altering(
    *resources: tuple[int, str, str, str], check: bool = False
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=config, config_operation=SET, value=value)],
            )
            for kind, name, config, value in resources
        ],
        validate_only=check,
    )


@asked("IncrementalAlterConfigs")
def altered_one_by_one(cell: Cell) -> None:
    value = str(10**9 + cell.turn)
    topics = [(TOPIC, each, OF_TOPIC, value) for each in cell.all()]
    cell.ask("a check", altering(*topics, check=True))
    cell.ask("all topics", altering(*topics))
    moved(cell, "all topics", value)
    for index, word in ((0, "allowed"), (2, "denied")):
        cell.ask(f"{word} twice", altering(topics[index], topics[index]))
    for step, kind, name, config, new in OTHERS:
        cell.ask(step, altering((kind, named(cell, kind, name), config, new), check=True))
    mixed = (topics[0], (BROKER, "1", OF_BROKER, "1000000"))
    cell.ask("a topic and the broker", altering(*mixed, check=True))


def altering_all(*resources: tuple[int, str, str, str], check: bool = False) -> AlterConfigsRequest:
    return AlterConfigsRequest(
        resources=[
            OldResource(
                resource_type=kind,
                resource_name=name,
                configs=[OldConfig(name=config, value=value)],
            )
            for kind, name, config, value in resources
        ],
        validate_only=check,
    )


@asked("AlterConfigs")
def altered(cell: Cell) -> None:
    value = str(10**9 + cell.turn)
    topics = [(TOPIC, each, OF_TOPIC, value) for each in cell.all()]
    cell.ask("a check", altering_all(*topics, check=True))
    cell.ask("all topics", altering_all(*topics))
    moved(cell, "all topics", value)
    for step, kind, name, config, new in OTHERS:
        cell.ask(step, altering_all((kind, named(cell, kind, name), config, new), check=True))


@asked("ListConfigResources")
def listed(cell: Cell) -> None:
    def mine(answer: Any) -> None:
        keep = {cell.own(word) for word in EXISTING}
        answer.config_resources = [
            each
            for each in answer.config_resources
            if each.resource_type in {BROKER, LOGGER} or each.resource_name in keep
        ]

    cell.ask("what is supported", ListConfigResourcesRequest(), trim=mine)
    if cell.version:
        for name, kind in (("topics", TOPIC), ("brokers", BROKER), ("client metrics", METRICS)):
            cell.ask(name, ListConfigResourcesRequest(resource_types=[kind]), trim=mine)


@asked("DescribeClientQuotas")
def quotas(cell: Cell) -> None:
    part = ComponentData(entity_type="client-id", match_type=ANY, match=None)
    cell.ask("all clients'", DescribeClientQuotasRequest(components=[part]))


@asked("AlterClientQuotas")
def altered_quotas(cell: Cell) -> None:
    mine = entry([("client-id", cell.own())], (PRODUCE, 1e9))
    cell.ask("a check", AlterClientQuotasRequest(entries=[mine], validate_only=True))
    cell.ask("one", AlterClientQuotasRequest(entries=[mine]))
    cell.quietly(
        AlterClientQuotasRequest(entries=[entry([("client-id", cell.own())], (PRODUCE, None))]), 1
    )
