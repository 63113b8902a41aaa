"""`smq group list|describe|reset|delete|delete-offsets`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    PARTITION_MAX,
    AsJson,
    Bootstrap,
    cluster_at,
    refusal,
)
from smq.cli.output import say, say_lines
from smq.cli.places import PLACES
from smq.model.errors import BrokerError

if TYPE_CHECKING:
    from smq.cli.group.offset_plan import Move

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)

GroupName = Annotated[
    str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)
]


@app.command("list", epilog='JSON: [{"group", "state", "protocol_type"}]')
def list_groups(bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, *, as_json: AsJson = False) -> None:
    """List consumer groups."""
    from smq.client.kafka.admin import groups  # noqa: PLC0415  (NumPy takes its time.)

    with cluster_at(bootstrap) as cluster:
        found = groups(cluster)
    if as_json:
        facts = [
            {
                "group": each.group_id,
                "state": each.group_state,
                "protocol_type": each.protocol_type,
            }
            for each in found
        ]
        say(json.dumps(facts))
        return
    for each in found:
        say(f"{each.group_id:<40} {each.group_state}")


@app.command(
    epilog='JSON: {"group", "state", "protocol", "members": [{"member_id", "instance_id", '
    '"client_id", "client_host", "partitions": [{"topic", "partition"}]}], "offsets": [{"topic", '
    '"partition", "offset", "end", "lag", "member_id"}], "lag"}'
)
def describe(
    group: GroupName, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, *, as_json: AsJson = False
) -> None:
    """Show a group's members, committed offsets and lag."""
    from smq.cli.group import work  # noqa: PLC0415  (NumPy takes its time.)

    with cluster_at(bootstrap) as cluster:
        facts = work.facts_of(cluster, group)
    if as_json:
        say_lines(json.dumps(facts, indent=2))
        return
    say(f"{group}  {facts['state']}  {facts['protocol'] or 'no protocol'}  lag {facts['lag']:,}")
    for each in facts["members"]:
        count = len(each["partitions"])
        say(
            f"member {each['member_id']}  {each['client_id']} at {each['client_host']}, "
            f"{count} partition{'s' if count != 1 else ''}"
        )
    say(f"{'topic':<28} {'partition':>9} {'committed':>14} {'end':>14} {'lag':>12} member")
    for each in facts["offsets"]:
        committed = "-" if each["offset"] is None else each["offset"]
        lag = "-" if each["lag"] is None else each["lag"]
        say(
            f"{each['topic']:<28} {each['partition']:>9} {committed:>14} {each['end']:>14} "
            f"{lag:>12} {each['member_id'] or '-'}"
        )


@app.command(
    epilog='JSON: {"group", "dry_run", "offsets": [{"topic", "partition", "before", "offset", '
    '"lag"}]}; --from-file takes it.'
)
def reset(  # noqa: PLR0913  (Each is an option.)
    group: GroupName,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", help="A topic to reset; may be repeated. Default: all with commits."
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", min=0, max=PARTITION_MAX, help="A partition of the topics; default: all."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="PLACE", help=f"The place to move to: {PLACES}.")
    ] = None,
    by: Annotated[
        int | None, typer.Option("--by", metavar="N", help="Move by N offsets; back if negative.")
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option("--duration", metavar="TIME", help="Go back from now: 90s, 15m, 2h, 7d."),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file", help="CSV lines topic,partition,offset, or the output of --json."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan, and commit nothing.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Move a group's committed offsets. The group must have no members.

    An offset that a partition does not have becomes its first or its next one.
    """
    ways = {"--to": to, "--by": by, "--duration": duration, "--from-file": from_file}
    chosen = [name for name, value in ways.items() if value is not None]
    if len(chosen) != 1:
        raise refusal(f"name one of {', '.join(ways)}; {len(chosen)} are given")
    if from_file is not None and (topic or partition):
        raise refusal("--from-file names the topics and partitions itself")
    from smq.cli.group import work  # noqa: PLC0415  (NumPy takes its time.)

    with cluster_at(bootstrap) as cluster:
        try:
            wanted = work.WantedReset(cluster, group, topic or [], partition)
            moves = wanted.moves(to=to, by=by, duration=duration, from_file=from_file)
        except ValueError as error:
            raise refusal(str(error)) from error
        if not dry_run:
            work.commit(cluster, group, moves)
    _print_moves(group, moves, dry_run=dry_run, as_json=as_json)


@app.command(epilog='JSON: {"group"}')
def delete(
    group: GroupName, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, *, as_json: AsJson = False
) -> None:
    """Delete a group and its committed offsets. The group must have no members."""
    from smq.cli.group.work import refused  # noqa: PLC0415  (NumPy takes its time.)
    from smq.client.kafka.group_admin import delete_group  # noqa: PLC0415  (as above)

    with cluster_at(bootstrap) as cluster:
        try:
            delete_group(cluster, group)
        except BrokerError as error:
            raise refused(group, error) from error
    say(json.dumps({"group": group}) if as_json else f"deleted {group}")


@app.command("delete-offsets", epilog='JSON: {"group", "deleted": [{"topic", "partition"}]}')
def delete_offsets(
    group: GroupName,
    topic: Annotated[list[str], typer.Option("--topic", help="A topic; may be repeated.")],
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    *,
    as_json: AsJson = False,
) -> None:
    """Forget what a group has committed in topics that no member reads."""
    from smq.cli.group import work  # noqa: PLC0415  (NumPy takes its time.)

    with cluster_at(bootstrap) as cluster:
        names = work.delete_offsets(cluster, group, topic)
    if as_json:
        deleted = [{"topic": name.topic, "partition": name.partition} for name in names]
        say(json.dumps({"group": group, "deleted": deleted}))
        return
    say(f"deleted {len(names)} offset{'s' if len(names) != 1 else ''} of {group}")


def _print_moves(group: str, moves: "list[Move]", *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        offsets = [each.as_json() for each in moves]
        say_lines(json.dumps({"group": group, "dry_run": dry_run, "offsets": offsets}, indent=2))
        return
    say(f"{'topic':<28} {'partition':>9} {'before':>14} {'after':>14} {'lag':>12}")
    for each in moves:
        before = "-" if each.before is None else each.before
        say(
            f"{each.name.topic:<28} {each.name.partition:>9} {before:>14} {each.after:>14} "
            f"{each.lag:>12}"
        )
    count = f"{len(moves)} offset{'s' if len(moves) != 1 else ''}"
    say(f"{count} would move; run it without --dry-run" if dry_run else f"committed {count}")
