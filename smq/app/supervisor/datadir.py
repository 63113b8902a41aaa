"""The data directory: its locks, its identity, and its next generation.

    <data>/meta.json         format versions, cluster id, number of logs, last generation taken
    <data>/supervisor.lock   held by the supervisor alone: "already served by process N"
    <data>/restoring         exists while `smq restore` fills the directory: not servable
    <data>/lock              held by the supervisor and inherited by every process it forks
    <data>/logs/<log id>/  store.sqlite  filer/  cache/      of other modules

There are two locks, because a supervisor may die before its children notice. The first lock is free
at once, the second only when the last child has exited, and the next start waits for that instead
of sharing the data with them. The first is a POSIX lock (a fork does not inherit it), the second a
flock (all forks share it).

A generation is durable before its first use, so none is ever used twice.
"""

import base64
import errno
import fcntl
import json
import os
import re
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shm.layout import WAL_FORMAT
from smq.app.process.clock import monotonic_ms, sleep
from smq.app.supervisor.contents import check_contents
from smq.log.files.disk import OsDisk
from smq.model.config import INT32_MAX, SETTINGS
from smq.model.errors import MadeByNewer
from smq.model.named_files import read_named

FORMAT_VERSION = 1
RESTORING = "restoring"
LOGS_MAX = SETTINGS["shards"].at_most or 0  # Each shard of a start has had a log.
_NEWEST = {"format_version": FORMAT_VERSION, "wal_format": WAL_FORMAT}
# Children notice a supervisor's death in ms; without idle cores their end takes half a minute.
STRAGGLERS_WAIT_MS = 60_000
_POLL_S = 0.02
CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{22}")  # 16 bytes as Kafka writes them; names a directory.
# What each field may be; a file from elsewhere may say anything, and names become paths.
_BOUNDS: Mapping[str, range] = {
    "format_version": range(INT32_MAX),
    "wal_format": range(INT32_MAX),
    "log_count": range(LOGS_MAX + 1),
    "generation": range(-1, INT32_MAX),
}


@dataclass(frozen=True, slots=True)
class Meta:
    """The content of meta.json. `generation` is the last one taken, -1 before the first."""

    cluster_id: str
    log_count: int
    generation: int


class DataDirectory:
    """A data directory that only this process and its forks may serve.

    Opening it raises SystemExit with a sentence if that is impossible. `may_be_restoring` is for a
    restore, which may continue an unfinished one.
    """

    def __init__(
        self,
        path: Path,
        *,
        stragglers_wait_ms: int = STRAGGLERS_WAIT_MS,
        may_be_restoring: bool = False,
    ) -> None:
        self.path = path
        try:
            with ExitStack() as undo:
                OsDisk().make_directory(path.absolute())
                check_contents(path)
                self._supervisor_fd = self._open(path / "supervisor.lock", undo)
                self._lock_supervisor()
                self._fd = self._open(path / "lock", undo)
                self._lock_data(stragglers_wait_ms)
                if (path / RESTORING).exists() and not may_be_restoring:
                    raise SystemExit(
                        f"smq: a restore into {path} has not finished; run `smq restore` again"
                    )
                self.meta = read_meta(path)
                undo.pop_all()
        except OSError as reason:
            raise SystemExit(f"smq: {unusable(path, reason)}") from reason

    def start(self, shards: int) -> Meta:
        """Take the generation of a new start; each shard has at least one log."""
        log_count = max(self.meta.log_count, shards)
        try:
            return self._write(Meta(self.meta.cluster_id, log_count, self.meta.generation + 1))
        except OSError as reason:
            raise SystemExit(f"smq: {unusable(self.path, reason)}") from reason

    def take_generation(self) -> int:
        """Take the next generation, durably. Raises OSError if that fails."""
        meta = self.meta
        return self._write(Meta(meta.cluster_id, meta.log_count, meta.generation + 1)).generation

    def close(self) -> None:
        """Release the directory to others."""
        os.close(self._supervisor_fd)
        os.close(self._fd)

    def close_in_child(self) -> None:
        """In a fork: keep only the lock that makes the next start wait for us."""
        os.close(self._supervisor_fd)

    @staticmethod
    def _open(path: Path, undo: ExitStack) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        undo.callback(os.close, fd)
        return fd

    def _lock_supervisor(self) -> None:
        fd = self._supervisor_fd
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            pid = os.pread(fd, 20, 0).decode() or "unknown"
            raise SystemExit(
                f"smq: {self.path} is already served by process {pid}; "
                "stop it, or choose another directory with --data-dir"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)

    def _lock_data(self, wait_ms: int) -> None:
        deadline_ms = monotonic_ms() + wait_ms
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if monotonic_ms() >= deadline_ms:
                    raise SystemExit(
                        f"smq: processes of the last run still hold {self.path} after "
                        f"{wait_ms / 1000:g} s; end them (fuser {self.path / 'lock'}) and try again"
                    ) from None
                sleep(_POLL_S)
            else:
                return

    def _write(self, meta: Meta) -> Meta:
        assert meta.cluster_id == self.meta.cluster_id
        assert meta.generation == self.meta.generation + 1, "none is used twice or left out"
        assert meta.log_count >= self.meta.log_count, "a log that is there is never forgotten"
        replace_durably(self.path / "meta.json", meta_text(meta))
        self.meta = meta
        return meta


def new_cluster_id() -> str:
    """A cluster id in Kafka's format."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def read_meta(directory: Path) -> Meta:
    """Read a directory's meta.json; without one, return that of a new cluster.

    Raises SystemExit with a sentence, and OSError.
    """
    path = directory / "meta.json"
    try:
        content = read_named(path)
    except FileNotFoundError:
        return Meta(new_cluster_id(), 0, -1)
    return meta_of(path, content)


def meta_of(path: Path, content: bytes) -> Meta:
    """Decode a meta.json. Raises SystemExit with a sentence."""
    try:
        fields = _fields_of_meta(content)
    except ValueError as reason:
        raise SystemExit(
            f"smq: {path} is damaged ({reason}); restore it from a backup: "
            "it holds the generation and the cluster id"
        ) from reason
    for name, newest in _NEWEST.items():
        if fields[name] > newest:
            what = f"its {name} is {fields[name]}, this SMQ knows up to {newest}"
            raise SystemExit(f"smq: {MadeByNewer(str(path), what)}")
    return Meta(fields["cluster_id"], fields["log_count"], fields["generation"])


def meta_text(meta: Meta) -> bytes:
    """Encode a meta.json."""
    fields = {
        **_NEWEST,
        "cluster_id": meta.cluster_id,
        "log_count": meta.log_count,
        "generation": meta.generation,
    }
    return json.dumps(fields, indent=2).encode() + b"\n"


def _fields_of_meta(content: bytes) -> dict[str, Any]:
    """Decode meta.json; a newer format may have other fields. Raises ValueError with a reason."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    # Data from before the logs' format had a number is of the first format.
    given = {"wal_format": 1, **fields} if isinstance(fields, dict) else {}
    version = given.get("format_version")
    is_newer = isinstance(version, int) and version > FORMAT_VERSION
    if is_newer:
        return given
    for name, bounds in _BOUNDS.items():
        if type(given.get(name)) is not int or given[name] not in bounds:
            raise ValueError(f"it has no valid {name}")
    if not CLUSTER_ID.fullmatch(str(given.get("cluster_id"))):
        raise ValueError("it has no valid cluster_id")
    return given


def replace_durably(path: Path, content: bytes) -> None:
    """Replace the file's content, all or nothing, whatever fails in between."""
    temporary = path.with_name(path.name + ".new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


_WHY = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota of that disk is used up",
    errno.EACCES: "this user may not write there",
    errno.EPERM: "this user may not write there",
    errno.EROFS: "it lies on a read-only file system",
    errno.ENOTDIR: "it is not a directory",
    errno.EEXIST: "it is not a directory",
    errno.ENOENT: "no directory can be made there",
}
_FULL = (errno.ENOSPC, errno.EDQUOT)


def unusable(path: Path, reason: OSError) -> str:
    """The sentence for a data directory that cannot be used."""
    why = _WHY.get(reason.errno or 0, str(reason))
    remedy = "free some space, or choose" if reason.errno in _FULL else "choose"
    return f"the data directory {path} cannot be used: {why}; {remedy} another with --data-dir"
