"""`smq status`: processes, rates, and where the bytes are.

Processes and rates come from the supervisor's status file and the counters in shared memory: it
answers also while a shard hangs.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from time import sleep
from typing import Annotated, Any

import typer

from shm.cluster import COUNTERS, ClusterBlock
from smq.app.cli_serve import ConfigFile, load_config
from smq.app.clock import wall_ms
from smq.app.status import read_status

RATE_WINDOW_S = 0.5


def status(
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", help="The broker's data directory.")
    ] = None,
    config: ConfigFile = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show the broker that serves a data directory."""
    settings, _ = load_config(config, {"data.dir": data_dir} if data_dir else {})
    facts = broker_facts(settings.data_dir)
    if facts is None:
        raise SystemExit(
            f"smq: no broker serves {settings.data_dir}; start one with `smq serve`, "
            "or name its directory with --data-dir"
        )
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        for line in _lines(facts):
            typer.echo(line)


def broker_facts(data_dir: Path, window_s: float = RATE_WINDOW_S) -> dict[str, Any] | None:
    """Everything there is to show, or None when no broker serves the directory."""
    found = read_status(data_dir)
    if found is None:
        return None
    running, block = found
    nodes = _nodes_with_rates(block, window_s)
    return {
        **asdict(running),
        "ready": running.ready,
        "up_ms": wall_ms() - running.started_ms,
        "nodes": nodes,
        "bytes": {
            "rings": running.ring_bytes * running.log_count,
            "write_ahead_logs": _bytes_below(data_dir / "logs"),
            "sealed": _bytes_below(Path(running.filer_root)),
            "cold_cache": _bytes_below(data_dir / "cache"),
        },
    }


def _nodes_with_rates(block: ClusterBlock, window_s: float) -> list[dict[str, Any]]:
    """What each node counts, and how fast it grew over a moment."""
    before = {node.id: [*block.counters(node.id)] for node in block.nodes()}
    sleep(window_s)
    nodes = []
    for node in block.nodes():
        counters = dict(zip(COUNTERS, block.counters(node.id), strict=True))
        rates = {
            f"{name}_per_s": round((counters[name] - old) / window_s)
            for name, old in zip(COUNTERS, before[node.id], strict=True)
            if name != "connections"
        }
        nodes.append(node._asdict() | {"counters": counters, "rates": rates})
    return nodes


def _bytes_below(root: Path) -> int:
    """Bytes on the disk of all files below a directory."""
    return sum(_file_bytes(Path(directory) / name) for directory, name in _files_below(root))


def _files_below(root: Path) -> Iterator[tuple[str, str]]:
    for directory, _, names in os.walk(root):
        for name in names:
            yield directory, name


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # Recycled or swept while we look.
        return 0


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    state = "ready" if facts["ready"] else "not ready"
    yield f"{facts['bootstrap']}  {state}, up {facts['up_ms'] / 1000:.0f} s"
    yield f"cluster {facts['cluster_id']}, supervisor is process {facts['supervisor_pid']}"
    yield ""
    for name, process in facts["processes"].items():
        state = "ready" if process["ready"] else "down" if not process["pid"] else "starting"
        yield f"{name:<12} {process['pid']:>8}  {state:<8}  {process['restarts']} restarts"
    yield ""
    yield f"{'node':<5} {'epoch':>6} {'clients':>8} {'requests/s':>11} {'in':>12} {'out':>12}"
    for node in facts["nodes"]:
        rates = node["rates"]
        yield (
            f"{node['id']:<5} {node['generation']:>6} {node['counters']['connections']:>8} "
            f"{rates['requests_per_s']:>11} {size(rates['bytes_received_per_s']):>10}/s "
            f"{size(rates['bytes_sent_per_s']):>10}/s"
        )
    yield ""
    for name, count in facts["bytes"].items():
        yield f"{name.replace('_', ' '):<18} {size(count):>10}"


def size(count: float) -> str:
    """Bytes for a human: three digits and a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:  # Not 1024: four digits would not fit.
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"
