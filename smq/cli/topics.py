"""`smq topic create|list|describe|offsets|alter|add-partitions|trim|delete`."""

import json
from typing import Annotated, Any

import typer

from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    PARTITION_MAX,
    AsJson,
    Bootstrap,
    TopicName,
    cluster_at,
    cluster_with,
    refusal,
    split_pair,
)
from smq.cli.output import say, say_lines
from smq.cli.places import OFFSET_TYPES
from smq.model.offset_types import WantedPlace

app = typer.Typer(help="Create, list, describe, change and delete topics.", no_args_is_help=True)


@app.command(epilog='JSON: {"topic", "partitions"}')
def create(
    topic: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            max=PARTITION_MAX,
            help="Number of partitions; default: the broker's.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", help="A config of the topic; may be repeated.", metavar="K=V"),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    *,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    from smq.client.kafka import admin  # noqa: PLC0415  (NumPy takes its time.)

    configs = dict(split_pair(each, "--config") for each in config or [])
    with cluster_at(bootstrap) as cluster:
        count = admin.DEFAULT_OF_THE_BROKER if partitions is None else partitions
        count = admin.create_topic(cluster, topic, count, configs)
    if as_json:
        say(json.dumps({"topic": topic, "partitions": count}))
    else:
        say(f"created {topic} with {count} partition{'s' if count != 1 else ''}")


@app.command("list", epilog='JSON: [{"topic", "partitions"}]')
def list_topics(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """List topics."""
    with cluster_at(bootstrap) as cluster:
        topics = [topic for topic in cluster.topics() if internal or not topic.is_internal]
    if as_json:
        found = [{"topic": topic.name, "partitions": len(topic.leaders)} for topic in topics]
        say(json.dumps(found))
        return
    for topic in topics:
        say(f"{topic.name:<40} {len(topic.leaders):>5}")


@app.command(
    epilog='JSON: {"topic", "partitions": [{"partition", "leader", "leader_epoch", "first_offset", '
    '"next_offset"}], "configs": {NAME: {"value", "set"}}}'
)
def describe(
    topic: TopicName, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, *, as_json: AsJson = False
) -> None:
    """Show a topic's partitions and settings."""
    facts = _facts(topic, bootstrap)
    if as_json:
        say_lines(json.dumps(facts, indent=2))
        return
    say(f"{'partition':>9} {'leader':>6} {'epoch':>6} {'first offset':>14} {'next offset':>14}")
    for each in facts["partitions"]:
        say(
            f"{each['partition']:>9} {each['leader']:>6} {each['leader_epoch']:>6} "
            f"{each['first_offset']:>14} {each['next_offset']:>14}"
        )
    for name, setting in facts["configs"].items():
        if setting["set"]:
            say(f"{name}={setting['value']}")


@app.command(epilog='JSON: {"topic", "set": {NAME: VALUE}, "unset": [NAME]}')
def alter(
    topic: TopicName,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", help="A config to set; may be repeated.", metavar="K=V"),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", help="A config to reset to its default.", metavar="K"),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    *,
    as_json: AsJson = False,
) -> None:
    """Change configs of a topic: all of them, or none. They take effect at once."""
    from smq.client.kafka.topic_changes import alter_topic  # noqa: PLC0415  (as above)

    new, old = dict(split_pair(each, "--config") for each in config or []), unset or []
    if not new and not old:
        raise refusal("name what to change with --config K=V or --unset K")
    with cluster_with(topic, bootstrap) as cluster:
        alter_topic(cluster, topic, new, old)
    if as_json:
        say(json.dumps({"topic": topic, "set": new, "unset": old}))
        return
    for name, value in new.items():
        say(f"{topic}: {name}={value}")
    for name in old:
        say(f"{topic}: {name} has its default")


@app.command("add-partitions", epilog='JSON: {"topic", "partitions"}')
def add(
    topic: TopicName,
    added: Annotated[
        int, typer.Argument(metavar="COUNT", min=1, max=PARTITION_MAX, help="How many more.")
    ],
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    *,
    as_json: AsJson = False,
) -> None:
    """Give a topic more partitions. Keys may go to other partitions from then on."""
    from smq.client.kafka.topic_changes import add_partitions  # noqa: PLC0415  (as above)

    with cluster_with(topic, bootstrap) as cluster:
        count = add_partitions(cluster, topic, added)
    said = json.dumps({"topic": topic, "partitions": count})
    say(said if as_json else f"{topic} has {count} partitions now")


@app.command(
    epilog='JSON: {"topic", "group", "partitions": [{"partition", "earliest", "high_water", '
    '"stable_end", "committed", "lag", "start", "note"}]}'
)
def offsets(  # noqa: PLR0913  (each is an option)
    topic: TopicName,
    group: Annotated[
        str | None, typer.Option("--group", help="Show what this group has committed, and its lag.")
    ] = None,
    type_: Annotated[
        str,
        typer.Option("--type", help="Where would a reader start? " + ", ".join(OFFSET_TYPES)),
    ] = "resume-or-earliest",
    at: Annotated[
        int, typer.Option("--at", min=0, help="The offset of the type, or its nanoseconds.")
    ] = 0,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    *,
    as_json: AsJson = False,
) -> None:
    """Show each partition's ends, a group's lag, and where a reader would start."""
    from smq.client.kafka.offset_facts import offsets_of  # noqa: PLC0415  (NumPy takes its time.)

    kind = OFFSET_TYPES.get(type_)
    if kind is None:
        raise refusal(f"--type takes {', '.join(OFFSET_TYPES)}; not {type_!r}")
    with cluster_with(topic, bootstrap) as cluster:
        found = offsets_of(cluster, topic, group, WantedPlace(kind, at, at))
    if as_json:
        rows = [{"partition": each, **facts._asdict()} for each, facts in found.items()]
        say_lines(json.dumps({"topic": topic, "group": group, "partitions": rows}, indent=2))
        return
    heads = "earliest", "high water", "stable end", "committed", "lag", "start"
    say("partition" + "".join(f"{each:>14}" for each in heads))
    for each, facts in found.items():
        row = ("-" if fact is None else fact for fact in facts[:-1])
        say(f"{each:>9}" + "".join(f"{fact:>14}" for fact in row) + f"  {facts.note}".rstrip())


@app.command(epilog='JSON: {"topic", "first_offsets": {PARTITION: OFFSET}}')
def trim(
    topic: TopicName,
    before: Annotated[
        str,
        typer.Option(
            "--before", metavar="OFFSET|end", help="Delete the records before this offset."
        ),
    ],
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", min=0, max=PARTITION_MAX, help="Only in this partition; may be repeated."
        ),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    *,
    as_json: AsJson = False,
) -> None:
    """Delete a topic's oldest records for good."""
    from smq.client.kafka.topic_changes import HIGH_WATERMARK, delete_records  # noqa: PLC0415

    if before != "end" and not before.isdecimal():
        raise refusal(f"--before takes an offset or `end`, not {before!r}")
    offset = HIGH_WATERMARK if before == "end" else int(before)
    with cluster_with(topic, bootstrap) as cluster:
        starts = delete_records(cluster, topic, offset, partition or None)
    if as_json:
        say(json.dumps({"topic": topic, "first_offsets": starts}))
        return
    for each, start in starts.items():
        say(f"{topic}-{each} begins at offset {start}")


@app.command(epilog='JSON: {"topic"}')
def delete(
    topic: TopicName, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, *, as_json: AsJson = False
) -> None:
    """Delete a topic and its records."""
    from smq.client.kafka import admin  # noqa: PLC0415  (NumPy takes its time.)

    with cluster_with(topic, bootstrap) as cluster:
        admin.delete_topic(cluster, topic)
    say(json.dumps({"topic": topic}) if as_json else f"deleted {topic}")


def _facts(topic: str, bootstrap: str) -> dict[str, Any]:
    from smq.client.kafka import admin  # noqa: PLC0415  (NumPy takes its time.)
    from smq.client.kafka.offsets import EARLIEST, LATEST, resolve  # noqa: PLC0415

    with cluster_with(topic, bootstrap) as cluster:
        metadata = cluster.retrying(lambda: cluster.topic(topic))
        leaders = metadata.leaders
        first = resolve(cluster, topic, range(len(leaders)), EARLIEST)
        after = resolve(cluster, topic, range(len(leaders)), LATEST)
        configs = admin.topic_configs(cluster, topic)
    return {
        "topic": topic,
        "partitions": [
            {
                "partition": partition,
                "leader": leader,
                "leader_epoch": metadata.leader_epochs[partition],
                "first_offset": first[partition],
                "next_offset": after[partition],
            }
            for partition, leader in enumerate(leaders)
        ],
        "configs": {
            each.name: {"value": each.value, "set": each.config_source == admin.SOURCE_TOPIC}
            for each in configs
        },
    }
