"""`smq config list|set|unset|history`: settings, their origins, and their history."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    cluster_with,
    refusal,
    split_pair,
)
from smq.cli.output import say, say_lines
from smq.cli.serve import ConfigFile
from smq.cli.start import load_config
from smq.model.config_values import SOURCES
from smq.model.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smq.client.kafka.cluster import Cluster
    from smq.wire.generated.describe_configs import DescribeConfigsResourceResult

app = typer.Typer(help="Show and change settings.", no_args_is_help=True)

ALL_BROKERS = "all"
TopicOption = Annotated[str | None, typer.Option("--topic", help="A topic.")]
BrokerOption = Annotated[
    str | None, typer.Option("--broker", help="A broker's id, or `all`.", metavar="ID|all")
]


@app.command("list", epilog='JSON: {NAME: {"value", "source", "read_only", "sensitive"}}')
def list_settings(
    topic: TopicOption = None,
    broker: BrokerOption = None,
    *,
    only_set: Annotated[
        bool, typer.Option("--only-set", help="Leave out settings with default values.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List settings, their values, and where each is from: a topic's, a broker's, or what was
    changed for all brokers. Without an option, those of one of the brokers.
    """
    _check_one(topic, broker)
    with cluster_with(topic or "", bootstrap) as cluster:
        found = _settings(cluster, topic, broker)
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
        say_lines(json.dumps(facts, indent=2))
        return
    for name, each in facts.items():
        remark = f"{each['source']}{', needs a restart' if each['read_only'] else ''}"
        say(f"{name}={'' if each['value'] is None else each['value']}  ({remark})")


@app.command("set", epilog='JSON: {"topic" or "broker", "set": {NAME: VALUE}}')
def set_settings(
    pairs: Annotated[list[str], typer.Argument(metavar="K=V...", help="What to set.")],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    *,
    as_json: AsJson = False,
) -> None:
    """Set settings of a topic, of a broker, or without an option of all brokers: all or none.

    They take effect at once and are kept. What needs a restart is refused.
    """
    new = dict(split_pair(each, "smq config set") for each in pairs)
    whose = _change(bootstrap, topic, broker, new, [])
    if as_json:
        say(json.dumps(whose | {"set": new}))
        return
    for name, value in new.items():
        say(f"{_said(whose)}: {name}={value}")


@app.command("unset", epilog='JSON: {"topic" or "broker", "unset": [NAME]}')
def unset_settings(
    names: Annotated[
        list[str], typer.Argument(metavar="K...", help="Settings to reset to their defaults.")
    ],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    *,
    as_json: AsJson = False,
) -> None:
    """Give settings of a topic their defaults again; of a broker or of all, as `set`, what they
    were started with.
    """
    whose = _change(bootstrap, topic, broker, {}, names)
    if as_json:
        say(json.dumps(whose | {"unset": names}))
        return
    what = "has its default" if topic else "has again what the broker was started with"
    for name in names:
        say(f"{_said(whose)}: {name} {what}")


@app.command(
    epilog='JSON: [{"changed_ms", "resource_type", "resource", "name", "before", "after", '
    '"client_id", "client_host"}], the newest first; before and after are null for a default'
)
def history(  # noqa: PLR0913  (one option each)
    topic: TopicOption = None,
    broker: BrokerOption = None,
    *,
    count: Annotated[int, typer.Option("--count", help="Maximum number of changes.", min=1)] = 100,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", help="The broker's data directory.")
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show who has changed which setting, when, and what it was; the newest first.

    Without --topic or --broker: the changes of everything that has settings.
    The broker keeps the newest 10,000 changes, also of topics that are gone, and of a value the
    first 512 bytes.
    """
    from smq.store.config_changes import open_config_changes  # noqa: PLC0415  (as below)

    settings, _ = load_config(config, {"data.dir": data_dir} if data_dir else {})
    try:
        changes = open_config_changes(settings.data_dir / "store.sqlite")
        kind = "topic" if topic else "broker" if broker else ""
        found = changes.newest(count, kind, topic or _broker_name(broker))
        changes.close()
    except StoreError as reason:
        raise refusal(f"{reason}; name the broker's directory with --data-dir") from reason
    if as_json:
        say_lines(json.dumps([each._asdict() for each in found], indent=2))
        return
    for each in found:
        when = datetime.fromtimestamp(each.changed_ms / 1000, UTC).isoformat(" ", "milliseconds")
        unset = "unset" if each.resource_type == "broker" else "its default"
        values = " -> ".join(
            unset if value is None else value for value in (each.before, each.after)
        )
        who = f"{each.client_id or 'a client'} at {each.client_host}"
        whose = f"{each.resource_type} {each.resource}"
        if whose == "broker ":
            whose = _said({"broker": ALL_BROKERS})
        say(f"{when}  {whose}: {each.name}: {values}, by {who}")


def _change(
    bootstrap: str, topic: str | None, broker: str | None, new: dict[str, str], unset: list[str]
) -> dict[str, str]:
    """Change settings; returns whose."""
    from smq.client.kafka.config_changes import alter_broker  # noqa: PLC0415  (as below)
    from smq.client.kafka.topic_changes import alter_topic  # noqa: PLC0415  (as below)

    _check_one(topic, broker)
    with cluster_with(topic or "", bootstrap) as cluster:
        if topic is not None:
            alter_topic(cluster, topic, new, unset)
            return {"topic": topic}
        alter_broker(cluster, _broker_name(broker), new, unset)
        return {"broker": broker or ALL_BROKERS}


def _settings(
    cluster: "Cluster", topic: str | None, broker: str | None
) -> "Sequence[DescribeConfigsResourceResult]":
    from smq.client.kafka import admin, config_changes  # noqa: PLC0415  (NumPy takes its time.)

    if topic is not None:
        return admin.topic_configs(cluster, topic)
    if broker is not None:
        return config_changes.changed_settings(cluster, _broker_name(broker))
    return admin.broker_configs(cluster)


def _check_one(topic: str | None, broker: str | None) -> None:
    if topic is not None and broker is not None:
        raise refusal("--topic and --broker: name one of them")
    _broker_name(broker)


def _broker_name(broker: str | None) -> str:
    """A broker's name in Kafka's APIs: "" stands for all brokers."""
    if broker in {None, ALL_BROKERS}:
        return ""
    assert broker is not None
    if not (broker.isascii() and broker.isdecimal()):
        raise refusal(f"--broker takes a number or `{ALL_BROKERS}`, not {broker!r}")
    return broker


def _said(whose: dict[str, str]) -> str:
    if "topic" in whose:
        return whose["topic"]
    return "all brokers" if whose["broker"] == ALL_BROKERS else f"broker {whose['broker']}"
