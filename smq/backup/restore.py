"""Restores a snapshot into an empty data directory.

    restoring   the mark: no broker may serve the directory, and the same restore starts over
    then        filer, logs, store, clock.json; meta.json last, then the mark is removed

The lost broker may have continued after the snapshot. So the restored one starts with leader epochs
and producer ids far above the snapshot's, and clients that remember the lost one accept it. How far
is drawn anew for each restore: another restore of the same snapshot gives out other numbers, and
clients of the one are strangers to the other. So are those that know a transactional id: it has
another producer, and what it had open at the cut is aborted. The numbers are durable before the
mark goes.

The restored broker continues the snapshot's time line, on which ages count: on the same boot
exactly, elsewhere as far as the wall clock has gone on since the cut, but never back.
"""

import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from smq.app.process.machine import boot_id
from smq.app.process.status import read_status
from smq.app.supervisor.contents import bytes_max_of
from smq.app.supervisor.datadir import (
    RESTORING,
    DataDirectory,
    Meta,
    meta_text,
    new_cluster_id,
)
from smq.backup import folder
from smq.backup.files import copy, opened, sync_directories, write
from smq.backup.folder import About
from smq.backup.frames import RestoredFrames
from smq.backup.held import HeldFolder
from smq.backup.loading import check_it_loads
from smq.backup.objects import Topics, Ways, bring, bring_others
from smq.backup.take import Refused, keep_found_topics
from smq.backup.wal import check_segment, write_only
from smq.filer.local import LocalStore
from smq.filer.store import Store
from smq.log.files.checkpoint import FILE_NAME as CHECKPOINT, Checkpoint, restored_limits
from smq.log.losses import BOOT_FILE
from smq.model.errors import StoreError
from smq.store.access import Stored, forget_users, stored
from smq.store.copying import check_store, log_count_of, partition_numbers, renew
from smq.store.database import refuse_newer

# What the broker may have given out since the snapshot, at least, and beyond that room for restores
# that do not know each other. A generation and a coordinator's epoch have 31 bits on the wire.
EPOCHS_SKIPPED = range(10**4, 10**7 + 1)
IDS_SKIPPED = range(10**6, 2**40 + 1)
_LOCKS = {"lock", "supervisor.lock"}

Advance = Callable[[int], None]


class Restored(NamedTuple):
    """What a snapshot says of itself, and who it lets in."""

    about: About
    access: Stored


@dataclass(frozen=True, slots=True)
class Restoring:
    """One restore. Raises NotWhole, Refused, StoreError, OSError, SystemExit.

    `filer_root` is the location of the filer's store. `is_new_cluster`: the restored broker
    runs beside the snapshot's original instead of replacing it. `with_users`: the snapshot's users
    and access rules come along, whoever wrote them.
    """

    source: Path
    data_dir: Path
    filer: Store
    filer_root: str
    topics: Topics | None
    is_new_cluster: bool
    advance: Advance
    with_users: bool = True

    def run(self) -> Restored:
        """Restore everything."""
        with HeldFolder(self.source) as held:
            return self._restore(held)

    def _restore(self, held: HeldFolder) -> Restored:
        about = folder.read_held(held)
        refuse_newer(self.source / folder.STORE)
        meta = folder.read_meta(held)
        self._check_target()  # Before it gets our locks.
        directory = DataDirectory(self.data_dir, may_be_restoring=True)
        mark = self.data_dir / RESTORING
        try:
            self._check_target()
            self._clear()
            self._check_filer(mark, about)
            mark.write_text(self.said_of(about))
            try:
                self._bring(held, meta)
                access = stored(self.data_dir / folder.STORE)
            except BaseException:
                self._clear()
                raise
            if self.is_new_cluster:
                meta = replace(meta, cluster_id=new_cluster_id())
            meta = replace(meta, generation=meta.generation + secrets.choice(EPOCHS_SKIPPED))
            write(self.data_dir / folder.META, meta_text(meta))
            sync_directories(self.data_dir)
            mark.unlink()
            sync_directories(self.data_dir)
        finally:
            directory.close()
        return Restored(about, access)

    def _check_target(self) -> None:
        if read_status(self.data_dir) is not None:
            raise Refused(
                f"a broker serves {self.data_dir}; stop it, or restore into another directory"
            )
        there = {each.name for each in self.data_dir.iterdir()} if self.data_dir.is_dir() else set()
        if RESTORING not in there and there - _LOCKS:
            raise Refused(
                f"{self.data_dir} is not empty; restore into a new directory, or move away what "
                "is there"
            )

    def said_of(self, about: About) -> str:
        """What the mark says: which restore has begun. Another one's files have the same names."""
        topics = "" if self.topics is None else sorted("/".join(each) for each in self.topics)
        return f"{self.filer_root}\n{about.taken_ms} {about.check} {topics}\n"

    def _check_filer(self, mark: Path, about: About) -> None:
        """Accept the files of the same restore, unfinished."""
        is_ours = mark.exists() and mark.read_text() == self.said_of(about)
        if not is_ours and next(iter(self.filer.list()), None) is not None:
            raise Refused(
                f"the filer {self.filer_root} is not empty; restore into an empty one, which "
                "--config names"
            )

    def _clear(self) -> None:
        """Remove what an unfinished restore left; whoever holds the locks may."""
        for each in self.data_dir.iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            elif each.name not in {*_LOCKS, RESTORING}:
                each.unlink()

    def _bring(self, held: HeldFolder, meta: Meta) -> None:
        known = self._bring_store(held)
        store = self.data_dir / folder.STORE
        if log_count_of(store) > meta.log_count:
            raise Refused(
                f"{self.source} has partitions in logs that are not in its {folder.META}: somebody "
                "has changed this snapshot"
            )
        check_it_loads(store, meta)
        self._bring_logs(held, known, meta.generation)
        ways = Ways(held.open, held.link)
        objects = LocalStore(self.source / folder.FILER)

        def done(_key: str, length: int) -> None:
            self.advance(length)

        bring(objects, self.filer, self.topics, done, ways)
        if self.topics is None:
            bring_others(objects, self.filer, done, ways)

    def _bring_store(self, held: HeldFolder) -> set[int]:
        """The store, what belongs to its users, and where the time line was; returns the partitions
        that it has."""
        store = self.data_dir / folder.STORE
        copy(self.source / folder.STORE, store, open_source=held.open)
        check_store(store)  # Also of an earlier version: what follows knows today's tables.
        if self.topics is not None:
            keep_found_topics(store, self.topics)
        if not self.with_users:
            forget_users(store)
        elif (self.source / folder.DECOYS).exists():
            # The users keep their salts: with other decoys, who has asked before would know them.
            self._bring_file(held, folder.DECOYS)
        ids, epochs = secrets.choice(IDS_SKIPPED), secrets.choice(EPOCHS_SKIPPED)
        renew(store, {"producer_id": ids, "coordinator_epoch": epochs})
        if (self.source / folder.CLOCK).exists():
            self._bring_file(held, folder.CLOCK)
        return partition_numbers(store)

    def _bring_file(self, held: HeldFolder, name: str) -> None:
        """A file that a start reads whole, if it is no larger than a start allows."""
        write(self.data_dir / name, held.read(self.source / name, bytes_max_of(name)), 0o600)

    def _bring_logs(self, held: HeldFolder, known: set[int], generation: int) -> None:
        """The segments and the checkpoints. No snapshot has other files there: a start may believe
        a look-up table, and would serve what it names, at any place."""
        frames: dict[Path, RestoredFrames] = {}
        limits = restored_limits(len(known), generation)
        for path in sorted((self.source / folder.LOGS).glob("*/*")):
            to = self.data_dir / folder.LOGS / path.parent.name / path.name
            size = path.stat().st_size
            if path.name == CHECKPOINT:
                content = held.read(path, bytes_max_of(f"{folder.LOGS}/0/{CHECKPOINT}"))
                Checkpoint.of(content, path, limits)  # A damaged one a start passes over.
                write(to, content)
            elif path.suffix == ".wal":
                if path.parent not in frames:
                    frames[path.parent] = RestoredFrames(path.parent, generation)
                self._bring_segment(held, (path, to), known, frames[path.parent])
            self.advance(size)
        for log in (self.data_dir / folder.LOGS).glob("*"):
            # All restored data is on disk: anything incomplete was already damaged.
            write(log / BOOT_FILE, boot_id())

    def _bring_segment(
        self, held: HeldFolder, names: tuple[Path, Path], known: set[int], frames: RestoredFrames
    ) -> None:
        """One segment, from the first name to the second. The copy is judged: the snapshot's owner
        may write to the original meanwhile."""
        path, to = names
        open_segment, judge = partial(_open_segment, held), partial(frames.judge_file, path)
        if self.topics is None:
            copy(path, to, open_source=open_segment, judge=judge)
            return
        write_only(path, to, path.stat().st_size, known, open_segment)
        with opened(to) as fd:
            judge(fd, os.fstat(fd).st_size)


def _open_segment(held: HeldFolder, path: Path) -> int:
    fd = held.open(path)
    try:
        check_segment(path, os.fstat(fd).st_size)
    except StoreError:
        os.close(fd)
        raise
    return fd
