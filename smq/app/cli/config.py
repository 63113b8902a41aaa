"""`smq config list|set|unset`: settings of a topic or of the broker, and where each is from."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from smq.app.cli.client import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, cluster_with, split_pair
from smq.app.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smq.client.kafka.cluster import Cluster
    from smq.wire.generated.describe_configs import DescribeConfigsResourceResult

app = typer.Typer(help="Show and change settings.", no_args_is_help=True)

# Kafka's ConfigSource, as DescribeConfigs says it (KIP-226).
SOURCES = {1: "topic", 2: "dynamic", 3: "dynamic default", 4: "set at the start", 5: "default"}


@app.command("list", epilog='JSON: {NAME: {"value", "source", "read_only", "sensitive"}}')
def list_settings(
    topic: Annotated[
        str | None, typer.Option("--topic", help="The settings of a topic; else the broker's.")
    ] = None,
    *,
    only_set: Annotated[
        bool, typer.Option("--only-set", help="Leave out what has its default.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List settings, their values, and where each is from."""
    with cluster_with(topic or "", bootstrap) as cluster:
        found = _settings(cluster, topic)
    facts = {
        each.name: {
            "value": each.value,
            "source": SOURCES.get(each.config_source, "unknown"),
            "read_only": each.read_only,
            "sensitive": each.is_sensitive,
        }
        for each in sorted(found, key=lambda each: each.name)
        if not (only_set and SOURCES.get(each.config_source) == "default")
    }
    if as_json:
        say(json.dumps(facts, indent=2))
        return
    for name, each in facts.items():
        say(f"{name}={'' if each['value'] is None else each['value']}  ({each['source']})")


TopicOption = Annotated[
    str, typer.Option("--topic", help="The topic; the broker's settings change at its next start.")
]


@app.command("set", epilog='JSON: {"topic", "set": {NAME: VALUE}}')
def set_settings(
    pairs: Annotated[list[str], typer.Argument(metavar="K=V...", help="What to set.")],
    topic: TopicOption,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    *,
    as_json: AsJson = False,
) -> None:
    """Set settings of a topic, all or none. They take effect at once."""
    new = dict(split_pair(each, "smq config set") for each in pairs)
    _change(bootstrap, topic, new, [])
    if as_json:
        say(json.dumps({"topic": topic, "set": new}))
        return
    for name, value in new.items():
        say(f"{topic}: {name}={value}")


@app.command("unset", epilog='JSON: {"topic", "unset": [NAME]}')
def unset_settings(
    names: Annotated[list[str], typer.Argument(metavar="K...", help="What gets its default.")],
    topic: TopicOption,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    *,
    as_json: AsJson = False,
) -> None:
    """Give settings of a topic their defaults again."""
    _change(bootstrap, topic, {}, names)
    if as_json:
        say(json.dumps({"topic": topic, "unset": names}))
        return
    for name in names:
        say(f"{topic}: {name} has its default")


def _change(bootstrap: str, topic: str, new: dict[str, str], unset: list[str]) -> None:
    from smq.client.kafka.topic_changes import alter_topic  # noqa: PLC0415  (as below)

    with cluster_with(topic, bootstrap) as cluster:
        alter_topic(cluster, topic, new, unset)


def _settings(cluster: "Cluster", topic: str | None) -> "Sequence[DescribeConfigsResourceResult]":
    from smq.client.kafka import admin  # noqa: PLC0415  (NumPy takes its time.)

    return admin.broker_configs(cluster) if topic is None else admin.topic_configs(cluster, topic)
