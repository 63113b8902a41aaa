"""<data>/status.json: where the running broker is, for `smq status` and test drivers.

The supervisor writes it whenever a process starts, is ready or ends, and removes it when it stops.
A stale file of a killed supervisor names a cluster block that no longer exists, as that was memory
of the supervisor.
"""

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from shm.cluster import ClusterBlock
from shm.kernels.base import words
from shm.kernels.base.words import COUNTER_SEALED_CACHE_HITS
from shm.segment import LogMemory
from shm.timings import Timings
from smq.model.named_files import UnusableNamedFile, read_named

COUNTERS = {
    "produce_requests": words.COUNTER_PRODUCE_REQUESTS,
    "batches_in": words.COUNTER_BATCHES_IN,
    "records_in": words.COUNTER_RECORDS_IN,
    "bytes_in": words.COUNTER_BYTES_IN,
    "fetch_requests": words.COUNTER_FETCH_REQUESTS,
    "bytes_out": words.COUNTER_BYTES_OUT,
    "fetches_from_wal": words.COUNTER_FETCHES_FROM_WAL,
    "fetches_from_sealed": words.COUNTER_FETCHES_FROM_SEALED,
    "sealed_cache_hits": COUNTER_SEALED_CACHE_HITS,
    "syncs": words.COUNTER_SYNCS,
    "sync_ns": words.COUNTER_SYNC_NS,
}
"""The words of a log's memory that its shard counts in, by name."""


_MEMORY = re.compile(r"/proc/[0-9]{1,10}/fd/[0-9]{1,10}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One process of the broker. `pid` is 0 while it is down."""

    pid: int = 0
    ready: bool = False
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A running broker, as its supervisor knows it.

    `http` is the front's address, `grpc` and `agent` those of SeaweedMQ's services; "" without
    them. `sockets` are the unix sockets where this host's users reach each node by Kafka's
    protocol, `listeners` the names of the others. Memory is named by paths that the broker's user
    may open: the cluster block, the timings, and each log's memory in the order of the logs.
    """

    cluster_id: str
    bootstrap: str
    http: str
    grpc: str = ""
    agent: str = ""
    supervisor_pid: int
    started_ms: int
    cluster_block: str
    timings: str = ""
    log_memories: Sequence[str]
    ring_bytes: int
    wal_segment_bytes: int
    wal_bytes_max: int = 0
    filer_root: str
    processes: Mapping[str, ProcessStatus]
    sockets: list[str] = field(default_factory=list)
    listeners: list[str] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        return all(process.ready for process in self.processes.values())

    def write(self, data_dir: Path) -> None:
        """Replace the file atomically. It is its user's alone, whatever `filer.mode` opens."""
        path = status_path(data_dir)
        temporary = path.with_name(path.name + ".new")
        temporary.unlink(missing_ok=True)  # Of a supervisor that was killed, with its mode.
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(json.dumps(asdict(self), indent=2) + "\n")
        temporary.rename(path)


def status_path(data_dir: Path) -> Path:
    """The path of the status file in a data directory."""
    return data_dir / "status.json"


def read_status(data_dir: Path) -> tuple[Status, ClusterBlock] | None:
    """The running broker's status and its cluster block, or None when none runs.

    Raises SystemExit if it is another user's.
    """
    try:
        fields = json.loads(read_named(status_path(data_dir)))
    except (FileNotFoundError, NotADirectoryError, UnusableNamedFile):
        return None
    except PermissionError as reason:
        raise SystemExit(
            f"smq: {data_dir} belongs to another user; run this as the broker's user"
        ) from reason
    processes = {name: ProcessStatus(**each) for name, each in fields["processes"].items()}
    status = Status(**fields | {"processes": processes})
    try:
        fd = _open_memory(status.cluster_block)
    except OSError:
        return None
    try:
        block = ClusterBlock.attach(fd)
    except ValueError:  # The pid now belongs to another program.
        return None
    finally:
        os.close(fd)
    return (status, block) if block.supervisor_pid == status.supervisor_pid else None


def _open_memory(path: str) -> int:
    """Open memory of a process for reading. Raises OSError for all other paths.

    A file from elsewhere may name anything: a pipe would hang us, a device count as memory.
    """
    if not _MEMORY.fullmatch(path):
        raise FileNotFoundError(path)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(path)
    return fd


def attach_logs(status: Status) -> list[LogMemory]:
    """The memory of every log, read-only; skips memory whose supervisor has died."""
    attached = []
    for path in status.log_memories:
        try:
            attached.append(LogMemory.attach(_open_memory(path)))
        except OSError:
            break
    return attached


def attach_timings(status: Status) -> Timings | None:
    """The request latencies, read-only; None if the supervisor has died."""
    try:
        fd = _open_memory(status.timings)
    except OSError:
        return None
    try:
        return Timings.attach(fd)
    except ValueError:
        return None
    finally:
        os.close(fd)


def counters_of(memory: LogMemory) -> dict[str, int]:
    """A log's counters since the broker's start."""
    return {name: int(memory.words[word]) for name, word in COUNTERS.items()}
