"""/health/ready: whether each process serves, each shard answers, and the log has room.

Kubernetes asks every few seconds. A question over its own socket detects a shard that hangs: its
listeners may want TLS and a login.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from shm.kernels.base import words
from smq.app.process.asker import Asker
from smq.app.process.inheritance import shard_name, socket_path
from smq.app.process.status import read_status
from smq.front.debug import Look
from smq.model.errors import StoreError
from smq.wire.internal.telemetry import ListPushes

ANSWER_S_MAX = 1.0  # Kubernetes' default timeout is one second, but it retries before it acts.
DISK_FREE_SEGMENTS_MIN = 2  # The next segment, and a checkpoint of everything.


def readiness(data_dir: Path, runtime_dir: Path, look: Look) -> dict[str, Any]:
    """{"ready": all checks pass, "checks": {name: {"ready", "reason"}}}; a reason is a sentence."""
    checks = {
        name: {"ready": not reason, "reason": reason}
        for name, reason in _checks(data_dir, runtime_dir, look)
    }
    return {"ready": all(each["ready"] for each in checks.values()), "checks": checks}


def _checks(data_dir: Path, runtime_dir: Path, look: Look) -> Iterator[tuple[str, str]]:
    found = read_status(data_dir)
    if found is None:
        yield "broker", "no broker serves this directory"
        return
    status, block = found
    shards = {shard_name(node.id) for node in block.nodes()}
    with ThreadPoolExecutor(max(1, len(shards)), "ready") as pool:
        asked = {
            name: pool.submit(_shard_problem, socket_path(runtime_dir, name))
            for name, process in status.processes.items()
            if name in shards and process.ready
        }
        for name, process in status.processes.items():
            reason = "" if process.ready else "it is down" if not process.pid else "it is starting"
            yield name, asked[name].result() if name in asked else reason
    facts = look()
    free, least = facts.disk_free_bytes, DISK_FREE_SEGMENTS_MIN * status.wal_segment_bytes
    yield "disk", "" if free >= least else f"{free} bytes are free, and {least} are needed"
    for log in facts.logs:
        is_full = log.wal_room_bytes < words.FRAME_BYTES_MIN
        yield f"log-{log.log}", "wal.bytes.max is reached: the sealer is behind" if is_full else ""


def _shard_problem(path: Path) -> str:
    asker = Asker(path, ANSWER_S_MAX)
    try:
        asker.ask(ListPushes(0))
    except StoreError:
        return f"it does not answer within {ANSWER_S_MAX:g} s"
    finally:
        asker.close()
    return ""
