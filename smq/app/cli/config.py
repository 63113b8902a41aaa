"""`smq config list|set|unset|history`: settings, where each is from, and who has changed it."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from smq.app.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    cluster_with,
    refusal,
    split_pair,
)
from smq.app.cli.output import say
from smq.app.cli.serve import ConfigFile, load_config
from smq.model.errors import StoreError

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
        remark = f"{each['source']}{', needs a restart' if each['read_only'] else ''}"
        say(f"{name}={'' if each['value'] is None else each['value']}  ({remark})")


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


@app.command(
    epilog='JSON: [{"changed_ms", "resource_type", "resource", "name", "before", "after", '
    '"client_id", "client_host"}], the newest first; before and after are null for a default'
)
def history(
    topic: Annotated[
        str | None, typer.Option("--topic", help="Changes of a topic's settings; else all.")
    ] = None,
    *,
    count: Annotated[int, typer.Option("--count", help="How many at most.", min=1)] = 100,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", help="The broker's data directory.")
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show who has changed which setting, when, and what it was; the newest first.

    The broker keeps the newest 10,000 changes, also of topics that are gone.
    """
    from smq.store.config_changes import open_config_changes  # noqa: PLC0415  (as below)

    settings, _ = load_config(config, {"data.dir": data_dir} if data_dir else {})
    try:
        changes = open_config_changes(settings.data_dir / "store.sqlite")
        found = changes.newest(count, "topic" if topic else "", topic or "")
        changes.close()
    except StoreError as reason:
        raise refusal(f"{reason}; name the broker's directory with --data-dir") from reason
    if as_json:
        say(json.dumps([each._asdict() for each in found], indent=2))
        return
    for each in found:
        when = datetime.fromtimestamp(each.changed_ms / 1000, UTC).isoformat(" ", "milliseconds")
        values = " -> ".join(
            "its default" if value is None else value for value in (each.before, each.after)
        )
        who = f"{each.client_id or 'a client'} at {each.client_host}"
        say(f"{when}  {each.resource_type} {each.resource}: {each.name}: {values}, by {who}")


def _change(bootstrap: str, topic: str, new: dict[str, str], unset: list[str]) -> None:
    from smq.client.kafka.topic_changes import alter_topic  # noqa: PLC0415  (as below)

    with cluster_with(topic, bootstrap) as cluster:
        alter_topic(cluster, topic, new, unset)


def _settings(cluster: "Cluster", topic: str | None) -> "Sequence[DescribeConfigsResourceResult]":
    from smq.client.kafka import admin  # noqa: PLC0415  (NumPy takes its time.)

    return admin.broker_configs(cluster) if topic is None else admin.topic_configs(cluster, topic)
