"""Segments as files that an engine can open: local ones in place, copies of those in a bucket.

Spark reads S3 through Hadoop's s3a, which PySpark lacks: a job would load its jars from Maven, and
SMQ's jobs start without that. So the planned segments are first copied to a directory, checked
against the manifest, and read there. A given directory is kept and serves the next run, since
segments never change; on a cluster all nodes must see it.
"""

import atexit
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c
from smq.filer.store import Store
from smq.model.errors import StoreError
from smq.model.segments import Segment
from smq.tables.plan import Unreadable

COPIES_AT_ONCE = 4  # One request rarely uses the whole bandwidth to S3.


class Files:
    """Segments by their path below `root`."""

    def __init__(self, store: Store, staging: Path | None = None) -> None:
        place = store.local_path("any")
        self._store, self._is_local = store, place is not None
        self.root = place.parent if place is not None else staging or _directory_of_this_process()

    def fetch(self, segments: Sequence[Segment]) -> None:
        """Make these segments available below the root. Raises Unreadable."""
        if not self._is_local:
            with ThreadPoolExecutor(COPIES_AT_ONCE) as threads:
                list(threads.map(self._copy, segments))

    def path(self, segment: Segment) -> Path:
        """A segment's file, with the length in the manifest. Raises Unreadable."""
        path = self.root / segment.path
        try:
            length = path.stat().st_size
        except OSError as reason:
            raise Unreadable(f"{path} cannot be read: {reason}") from reason
        if length != segment.bytes:
            raise Unreadable(f"{path} has {length} bytes; the manifest says {segment.bytes}")
        return path

    def _copy(self, segment: Segment) -> None:
        target = self.root / segment.path
        if target.exists() and target.stat().st_size == segment.bytes:
            return
        part = target.with_name(f".{target.name}-{secrets.token_hex(8)}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with part.open("xb") as file, self._store.reading(segment.path) as reading:
                for piece in reading.pieces:
                    file.write(piece)
            _check(part, segment)
            part.rename(target)
        except (OSError, StoreError) as reason:
            raise Unreadable(
                f"{segment.path} cannot be copied to {self.root}: {reason}"
            ) from reason
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _check(path: Path, segment: Segment) -> None:
    """Check a copy against the manifest; later runs trust its name and length."""
    length = path.stat().st_size
    data = read_only(np.memmap(path, np.uint8, "r") if length else b"")
    if length != segment.bytes or int(crc32c(data, 0, length)) != segment.crc32c:
        raise Unreadable(f"{segment.path} is not what was sealed, by its length or CRC-32C")


def _directory_of_this_process() -> Path:
    """A directory removed at process exit: DataFrames may read it until then."""
    directory = tempfile.mkdtemp(prefix="smq-staging-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)
