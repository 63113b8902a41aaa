"""/health/ready: whether each process serves, each shard answers, and the log has room.

Kubernetes asks every few seconds. A request for its API versions detects a shard that hangs.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from shm.kernels.base import words
from smq.app.process.status import read_status
from smq.client.kafka.connection import KafkaConnection
from smq.front.debug import Look
from smq.model.errors import BrokerError, PeerError

ANSWER_S_MAX = 1.0  # Kubernetes' default timeout is one second, but it retries before it acts.
DISK_FREE_SEGMENTS_MIN = 2  # The next segment, and a checkpoint of everything.


def readiness(data_dir: Path, look: Look) -> dict[str, Any]:
    """{"ready": all checks pass, "checks": {name: {"ready", "reason"}}}; a reason is a sentence."""
    checks = {
        name: {"ready": not reason, "reason": reason} for name, reason in _checks(data_dir, look)
    }
    return {"ready": all(each["ready"] for each in checks.values()), "checks": checks}


def _checks(data_dir: Path, look: Look) -> Iterator[tuple[str, str]]:
    found = read_status(data_dir)
    if found is None:
        yield "broker", "no broker serves this directory"
        return
    status, block = found
    nodes = {f"shard-{node.id}": node for node in block.nodes()}
    host = status.bootstrap.partition(",")[0].rpartition(":")[0].strip("[]")
    with ThreadPoolExecutor(max(1, len(nodes)), "ready") as pool:
        asked = {
            name: pool.submit(_shard_problem, host, nodes[name].port)
            for name, process in status.processes.items()
            if name in nodes and process.ready
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


def _shard_problem(host: str, port: int) -> str:
    try:
        KafkaConnection(host, port, ANSWER_S_MAX).close()
    except (BrokerError, PeerError) as reason:
        return f"it does not answer: {reason}"
    return ""
