"""Takes a snapshot of a data directory, served or not.

    1  bring the filer's objects, then link the WAL's segments and copy the checkpoints
    2  the cut: hold the store for an instant, note where each log and partition begins and ends,
       link newer segments; what the rings still have is linked once it is written
    3  the store as of the cut, where the time line is, later additions to the logs and the filer,
       and the filer's other objects, which users may replace: so none is older than the cut
    4  each log up to its end at the cut; then meta.json, whose generation no frame exceeds

The cut is the state after a power loss at that instant that loses nothing: each partition is whole
up to its log's end, no committed offset lies beyond it, and no transaction is decided in one log
but not in another. Data appended to two logs within the instant may fall on either side.

During a snapshot, `pins/` in the data directory holds links to segments. The next start and the
next snapshot remove the leftovers of one that was killed.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from shm.kernels.base.words import WORD_WRITTEN
from shm.segment import LogMemory
from smq.app.process.clock import monotonic_ms, sleep, wall_ms
from smq.app.process.status import Status, attach_logs, read_status
from smq.app.supervisor import timeline
from smq.app.supervisor.datadir import DataDirectory, read_meta
from smq.app.supervisor.serve import PINS
from smq.backup import folder
from smq.backup.files import copy, write
from smq.backup.folder import About
from smq.backup.objects import Topics, bring, bring_others
from smq.backup.wal import LogCut, LogFiles, cut_of
from smq.filer.local import LocalStore
from smq.filer.store import Store
from smq.model.errors import StoreError
from smq.store.copying import (
    StoreCopy,
    keep_topics,
    partition_numbers,
    segment_paths,
    topics_of,
)

WRITTEN_WAIT_MS = 30_000  # For the WAL to hold what was in the rings at the cut.
CUTS_MAX = 10  # Retention may delete files between a cut and the filer's listing; then cut again.
_POLL_S = 0.005

Advance = Callable[[int], None]


class Refused(Exception):
    """No snapshot can be taken; the text says why and what to do."""


@dataclass(slots=True)
class Taking:
    """A snapshot to `target`. Raises Refused, StoreError, OSError, SystemExit."""

    data_dir: Path
    filer: Store
    target: Path
    topics: Topics | None
    advance: Advance
    _memories: list[LogMemory] = field(default_factory=list)
    _started_ms: int | None = None
    _shards: Mapping[str, int] = field(default_factory=dict)  # Their process ids.

    def run(self) -> About:
        """Take it; returns its description. Removes the snapshot on failure."""
        try:
            return self._run()
        except BaseException:
            folder.remove(self.target)
            raise

    def _run(self) -> About:
        with ExitStack() as stack:
            self._find_broker(stack)
            pins = stack.enter_context(_pins(self.data_dir))
            meta = read_meta(self.data_dir)
            logs = self.data_dir / folder.LOGS
            files = [LogFiles(logs / str(i), pins / str(i)) for i in range(meta.log_count)]
            store = stack.enter_context(StoreCopy(self.data_dir / folder.STORE))
            cuts = self._cut(store, files)
            time = timeline.present(self.data_dir)  # No kept time of the cut is later.
            write(self.target / folder.CLOCK, timeline.text_of(time))
            if (self.data_dir / folder.DECOYS).exists():
                copy(self.data_dir / folder.DECOYS, self.target / folder.DECOYS)
            known = partition_numbers(self.target / folder.STORE)
            for i, each in enumerate(files):
                cut = cuts[i] if cuts else None
                to = self.target / folder.LOGS / str(i)
                each.write(to, cut, known, only=self.topics is not None)
            self._check_it_still_serves()
            copy(self.data_dir / folder.META, self.target / folder.META)
            about = About(
                cluster_id=meta.cluster_id,
                taken_ms=wall_ms(),
                smq_version=version("smq-broker"),
                topics=_names(self.topics),
                log_ends={str(i): cut.end for i, cut in enumerate(cuts)},
            )
            return folder.finish(self.target, about)

    def _find_broker(self, stack: ExitStack) -> None:
        """Attach the broker's memory; or lock a directory that no broker serves."""
        found = read_status(self.data_dir)
        if found is None:
            if not (self.data_dir / folder.META).exists():
                raise Refused(f"{self.data_dir} is no data directory; name it with --data-dir")
            stack.callback(DataDirectory(self.data_dir).close)
            return
        status, _ = found
        if not status.ready:
            raise Refused(f"the broker of {self.data_dir} is still starting; try again")
        self._started_ms, self._shards = status.started_ms, _shards(status)
        self._memories = attach_logs(status)

    def _cut(self, store: StoreCopy, files: list[LogFiles]) -> list[LogCut]:
        """Copy the store with all files it names, and link the logs; returns these at that
        moment."""
        copied = self.target / folder.STORE
        brought = set[str]()
        target = LocalStore(self.target / folder.FILER, drops_pages=True)

        def done(key: str, length: int) -> None:
            if key not in brought:
                brought.add(key)
                self.advance(length)

        for _ in range(CUTS_MAX):
            bring(self.filer, target, self.topics, done)
            cuts, is_linked = self._cut_logs(store, files)
            copied.unlink(missing_ok=True)
            store.write(copied)
            if self.topics is not None:
                keep_found_topics(copied, self.topics)
            bring(self.filer, target, self.topics, done)
            missing = segment_paths(copied) - brought
            if is_linked and not missing:
                if self.topics is None:
                    bring_others(self.filer, target, done)
                return cuts
        if not missing:
            raise Refused("the logs are written over faster than they can be linked; try again")
        raise StoreError(min(missing), "the manifest names it, but the filer does not have it")

    def _cut_logs(self, store: StoreCopy, files: list[LogFiles]) -> tuple[list[LogCut], bool]:
        """The logs at a moment that the store keeps, and whether all that they have is linked."""
        for each in files:
            each.pin()
        with store.held():
            cuts = [cut_of(memory) for memory in self._memories]
            for each in files:
                each.pin_at_cut()
            self._check_the_same_shards_serve()
        self._wait_written([cut.end for cut in cuts])
        linked = [each.pin_new(cut.end) for each, cut in zip(files, cuts, strict=False)]
        return cuts, all(linked)

    def _wait_written(self, ends: list[int]) -> None:
        deadline_ms = monotonic_ms() + WRITTEN_WAIT_MS
        for log, (memory, end) in enumerate(zip(self._memories, ends, strict=True)):
            while int(memory.words[WORD_WRITTEN]) < end:
                if monotonic_ms() > deadline_ms:
                    raise Refused(
                        f"log {log} has not written records of {WRITTEN_WAIT_MS // 1000} s ago: "
                        "its disk is full or fails; see `smq doctor`"
                    )
                sleep(_POLL_S)

    def _check_the_same_shards_serve(self) -> None:
        """A shard that recovers has cleared the rows of its partitions: the cut would miss them."""
        found = read_status(self.data_dir) if self._started_ms is not None else None
        if found is not None and _shards(found[0]) != self._shards:
            raise Refused("a shard was restarted meanwhile; take the snapshot again")

    def _check_it_still_serves(self) -> None:
        found = read_status(self.data_dir) if self._started_ms is not None else None
        if self._started_ms != (found[0].started_ms if found else None):
            raise Refused("the broker was stopped or restarted meanwhile; take the snapshot again")


def _shards(status: Status) -> dict[str, int]:
    return {name: each.pid for name, each in status.processes.items() if name.startswith("shard-")}


def prepare(target: Path, data_dir: Path, filer_root: Path) -> BinaryIO:
    """Create the folder for a snapshot, which is ours until the file that is returned is closed.

    Raises Refused, OSError.
    """
    for home in (data_dir, filer_root):
        if target.resolve().is_relative_to(home.resolve()):
            raise Refused(f"{target} lies in {home}, which the broker uses; choose another place")
    try:
        return folder.begin(target)
    except BlockingIOError:
        raise Refused(f"another `smq snapshot` writes {target}; wait until it is done") from None
    except FileExistsError:
        raise Refused(f"{target} is there already and not empty; choose another name") from None


def keep_found_topics(store: Path, topics: Topics) -> None:
    """Delete all other topics from a copied store. Raises Refused if one is missing."""
    missing = {*topics} - topics_of(store)
    if missing:
        names = ", ".join(sorted(name for _, name in missing))
        raise Refused(f"there is no topic {names}; `smq topic list` shows the topics")
    keep_topics(store, topics)


def _names(topics: Topics | None) -> list[str] | None:
    return None if topics is None else sorted("/".join(each) for each in topics)


@contextmanager
def _pins(data_dir: Path) -> Iterator[Path]:
    """A directory for links to segments, for one snapshot at a time."""
    pins = data_dir / PINS
    pins.mkdir(exist_ok=True, mode=0o700)
    fd = os.open(pins, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with ExitStack() as stack:
        stack.callback(os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"another snapshot of {data_dir} is being taken; wait until it is done"
            ) from None
        stack.callback(_clear, pins)
        _clear(pins)
        yield pins


def _clear(pins: Path) -> None:
    for each in pins.iterdir():
        shutil.rmtree(each)
