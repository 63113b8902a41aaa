"""`smq status`: processes, rates, and disk usage.

Reads processes and rates from shared memory, so it works while a shard hangs. Only groups are asked
for, by the broker's unix sockets.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.app.process.clock import sleep
from smq.cli.output import say, say_lines
from smq.cli.serve import ConfigFile
from smq.cli.start import load_config

if TYPE_CHECKING:
    from smq.cli.group_facts import GroupFacts

RATE_WINDOW_S = 0.5
INTERVAL_S = 2.0
CLEAR = "\x1b[H\x1b[2J"  # A terminal's: home, and erase all.
JSON = (
    'JSON: {"cluster_id", "bootstrap", "http", "ready", "up_ms", "processes": {NAME: {"pid", '
    '"ready", "restarts"}}, "nodes": [], "logs": [{"log", "counters", "per_s", "bytes_in_ring", '
    '"wal_bytes_max", "wal_room_bytes", "sealing"}], '
    '"topics": [], "tables": [], "bytes": {}, "groups": [], "missing": [SENTENCE]}'
)


def status(
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", help="The broker's data directory.")
    ] = None,
    config: ConfigFile = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", min=0.1, max=3600, help="Seconds between refreshes, with --watch."
        ),
    ] = INTERVAL_S,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show the state of the broker that serves a data directory."""
    settings, _ = load_config(config, {"data.dir": data_dir} if data_dir else {})
    try:
        while True:
            _show(settings.data_dir, as_json=as_json, is_watched=watch)
            if not watch:
                return
            sleep(interval)
    except KeyboardInterrupt:  # Ctrl-C ends --watch.
        return


def _show(data_dir: Path, *, as_json: bool, is_watched: bool) -> None:
    from smq.cli.broker_facts import broker_facts  # noqa: PLC0415  (NumPy takes its time.)
    from smq.cli.group_facts import group_facts  # noqa: PLC0415  (So do the codecs.)

    try:
        facts = broker_facts(data_dir, RATE_WINDOW_S)
    except PermissionError as reason:
        raise SystemExit(f"smq: this user may not read the broker's state: {reason}") from reason
    if facts is None:
        raise SystemExit(
            f"smq: no broker serves {data_dir}; start one with `smq serve`, "
            "or name its directory with --data-dir"
        )
    if as_json:
        groups = group_facts(data_dir)
        facts |= {"groups": list(groups.groups.values()), "missing": groups.missing}
        say_lines(json.dumps(facts, indent=None if is_watched else 2))
        return
    if is_watched and sys.stdout.isatty():
        say(CLEAR)
    for line in _lines(facts):
        say(line)
    # Last: this asks the shards. If one hangs, everything else is already on the screen.
    for line in _group_lines(group_facts(data_dir)):
        say(line)


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    state = "ready" if facts["ready"] else "not ready"
    yield f"{facts['bootstrap']}  {state}, up {facts['up_ms'] / 1000:.0f} s"
    if facts["http"]:
        yield f"http://{facts['http']}/"
    yield f"cluster {facts['cluster_id']}, supervisor is process {facts['supervisor_pid']}"
    yield ""
    for name, process in facts["processes"].items():
        state = "ready" if process["ready"] else "down" if not process["pid"] else "starting"
        yield f"{name:<12} {process['pid']:>8}  {state:<8}  {process['restarts']} restarts"
    yield ""
    yield f"{'node':<6} {'port':>6} {'epoch':>6} {'clients':>8} {'attached':>8}"
    for node in facts["nodes"]:
        yield (
            f"{node['id']:<6} {node['port']:>6} {node['generation']:>6} {node['connections']:>8} "
            f"{node['sessions']:>8}"
        )
    yield ""
    yield (
        f"{'log':<6} {'records in':>12} {'records/s':>11} {'in':>13} {'out':>13} "
        f"{'WAL needed':>11}  sealing"
    )
    for log in facts["logs"]:
        rates = log["per_s"]
        yield (
            f"{log['log']:<6} {log['counters']['records_in']:>12,} {rates['records_in']:>11,} "
            f"{size(rates['bytes_in']):>11}/s {size(rates['bytes_out']):>11}/s "
            f"{size(log['wal_bytes_max'] - log['wal_room_bytes']):>11}  {log['sealing']}"
        )
    yield ""
    for name, count in facts["bytes"].items():
        yield f"{name.replace('_', ' '):<18} {size(count):>10}"
    yield ""
    yield f"{'topic':<28} {'partitions':>10} {'records':>13} {'unsealed':>11} {'sealed':>11}"
    for topic in facts["topics"]:
        yield (
            f"{topic['name']:<28} {topic['partitions']:>10} {topic['records']:>13,} "
            f"{size(topic['unsealed_bytes']):>11} {size(topic['sealed_bytes']):>11}"
        )
        if misfits := topic["untyped_records"]:
            yield f"  {misfits:,} sealed values do not fit smq.schema or smq.record.type"
    yield from table_lines(facts["tables"])


def table_lines(tables: list[dict[str, Any]]) -> Iterator[str]:
    """The lake tables, if there are any."""
    if not tables:
        return
    yield ""
    yield f"{'table of':<28} {'format':<8} {'files':>7} {'behind':>11} {'raw':>7}  state"
    for each in tables:
        state = each["error"] or each["note"] or ("published" if each["synced_ms"] else "waiting")
        yield (
            f"{each['topic']:<28} {each['format']:<8} {each['files']:>7,} "
            f"{each['records_behind']:>11,} {each['raw_records']:>7,}  {state}"
        )


def _group_lines(facts: "GroupFacts") -> Iterator[str]:
    yield ""
    yield f"{'group':<28} {'state':<20} lag"
    for group in facts.groups.values():
        yield f"{group['group']:<28} {group['state']:<20} {_lag_words(group['lags'])}"
    for sentence in facts.missing:
        yield f"missing: {sentence}"


def _lag_words(lags: dict[str, int] | None) -> str:
    if lags is None:
        return "not known"
    return ", ".join(f"{topic} {lag:,}" for topic, lag in lags.items()) or "nothing committed"


def size(count: float) -> str:
    """Bytes with three digits and a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:  # Not 1024: four digits would not fit.
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"
