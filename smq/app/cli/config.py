"""`smq config list`: the settings of a topic or of the broker, and where each is from."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from smq.app.cli.client import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, cluster_at, refusal
from smq.app.cli.output import say
from smq.model.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smq.client.kafka.cluster import Cluster
    from smq.wire.generated.describe_configs import DescribeConfigsResourceResult

app = typer.Typer(help="Show settings.", no_args_is_help=True)

# Kafka's ConfigSource, as DescribeConfigs says it (KIP-226).
SOURCES = {1: "topic", 2: "dynamic", 3: "dynamic default", 4: "set at the start", 5: "default"}


@app.callback()
def _config() -> None:
    """Show settings."""


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
    with cluster_at(bootstrap) as cluster:
        try:
            found = _settings(cluster, topic)
        except BrokerError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise refusal(
                    f"there is no topic {topic}; `smq topic list` shows the topics"
                ) from error
            raise
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


def _settings(cluster: "Cluster", topic: str | None) -> "Sequence[DescribeConfigsResourceResult]":
    from smq.client.kafka import admin  # noqa: PLC0415  (NumPy takes its time.)

    return admin.broker_configs(cluster) if topic is None else admin.topic_configs(cluster, topic)
