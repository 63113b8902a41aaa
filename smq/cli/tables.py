"""`smq tables`: topics as lake tables: their locations and lag."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    TopicName,
    client_at,
    cluster_with,
    refusal,
)
from smq.cli.output import say
from smq.cli.serve import ConfigFile
from smq.cli.start import load_config
from smq.cli.status import table_lines
from smq.model.topic_configs import SCHEMA

if TYPE_CHECKING:
    from smq.front.metrics.facts import TableFacts

app = typer.Typer(name="tables", help="Topics as lake tables.", no_args_is_help=True)
DataDir = Annotated[str | None, typer.Option("--data-dir", help="The broker's data directory.")]
RECORDS_READ = 1000
SILENCE_S = 2.0  # Stored records arrive sooner.
LIST_JSON = (
    'JSON: [{"topic", "format", "location", "files", "records_behind", "behind_s", "raw_records", '
    '"synced_ms", "error", "note"}]'
)


@app.command("list", epilog=LIST_JSON)
def list_tables(
    data_dir: DataDir = None, config: ConfigFile = None, *, as_json: AsJson = False
) -> None:
    """List the lake tables, and how far each is behind its topic."""
    found = [each._asdict() for each in _tables(_directory(data_dir, config))]
    if as_json:
        say(json.dumps(found))
        return
    for line in table_lines(found):
        say(line)
    if not found:
        say("no topic is a table; `smq config set --topic TOPIC smq.table=iceberg` makes one")


@app.command("describe", epilog=LIST_JSON.replace("[", "").replace("]", ""))
def describe(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    data_dir: DataDir = None,
    config: ConfigFile = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show where a topic's lake table is, and how far."""
    found = [each for each in _tables(_directory(data_dir, config)) if each.topic == topic]
    if not found:
        raise refusal(
            f"{topic} has no table; `smq config set --topic {topic} smq.table=iceberg` makes one"
        )
    facts: dict[str, Any] = found[0]._asdict()
    if as_json:
        say(json.dumps(facts))
        return
    for name, value in facts.items():
        say(f"{name.replace('_', ' '):<16} {value}")


@app.command(epilog='JSON: {"schema", "objects", "others", "left_out": [SENTENCE], "is_set"}')
def infer(
    topic: TopicName,
    records: Annotated[
        int, typer.Option("--records", help="How many of the first records to read.", min=1)
    ] = RECORDS_READ,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    *,
    is_set: Annotated[
        bool, typer.Option("--set", help="Set it as the topic's smq.schema.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Infer a topic's schema from its first JSON records; print it, or set it."""
    from smq.client.kafka.topic_changes import alter_topic  # noqa: PLC0415  (as below)
    from smq.model.topic_schema import written  # noqa: PLC0415  (`smq --help` imports little.)
    from smq.tables.infer import inferred  # noqa: PLC0415  (as above)

    found = inferred(_first_values(topic, records, bootstrap))
    if not found.columns:
        raise refusal(f"no schema fits: {topic} has {found.objects} JSON objects among its first")
    schema = written(found.columns)
    if is_set:
        with cluster_with(topic, bootstrap) as cluster:
            alter_topic(cluster, topic, {SCHEMA: schema}, [])
    if as_json:
        facts = {"schema": schema, "objects": found.objects, "others": found.others}
        say(json.dumps({**facts, "left_out": found.left_out, "is_set": is_set}))
        return
    say(schema)
    for sentence in found.left_out:
        typer.echo(f"left out: {sentence}", err=True)
    if found.others:
        typer.echo(
            f"{found.others} of {found.others + found.objects} values are not JSON objects",
            err=True,
        )


def _first_values(topic: str, count: int, bootstrap: str) -> list[bytes | None]:
    values: list[bytes | None] = []
    with client_at(bootstrap) as client:
        if topic not in client.topics():
            raise refusal(f"{topic} does not exist")
        with client.consumer(topic, start="earliest") as consumer:
            while len(values) < count:
                with consumer.poll(SILENCE_S) as batch:
                    if not len(batch):
                        break
                    values += batch.to_arrow(["value"])["value"].to_pylist()
    return values[:count]


def _directory(data_dir: str | None, config: Path | None) -> Path:
    settings, _ = load_config(config, {"data.dir": data_dir} if data_dir else {})
    return settings.data_dir


def _tables(data_dir: Path) -> "list[TableFacts]":
    from smq.app.process.clock import wall_ms  # noqa: PLC0415  (`smq --help` imports little.)
    from smq.app.process.lake import table_facts  # noqa: PLC0415  (as above)
    from smq.model.errors import StoreError  # noqa: PLC0415  (as above)
    from smq.store.manifest import open_manifest  # noqa: PLC0415  (as above)

    try:
        with open_manifest(data_dir / "store.sqlite") as manifest:
            return [*table_facts(data_dir, manifest, manifest.topics(), wall_ms())]
    except StoreError as reason:
        raise refusal(f"{data_dir} cannot be read: {reason}") from reason
