"""The layout of a snapshot's folder.

    snapshot.json   its description; written last
    files           a line for each other file: its bytes, a space, its path
    meta.json       as in a data directory, like the next three
    store.sqlite
    clock.json      where the time line was at the cut; snapshots of earlier versions have none
    decoys.secret   what unknown users are answered with, where users can log in
    logs/<log>/     <position>.wal, checkpoint
    filer/          topics/…, payloads/…, and the filer's other objects
    unfinished      exists while the snapshot is being taken: such a folder is not a snapshot

The WAL, the checkpoint, the sealed segments and the payloads carry their own checksums, and a
restore checks the store; so the list has only sizes. `format` is the version.
"""

import fcntl
import json
import os
import shutil
import stat
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from smq.app.supervisor import modes, timeline
from smq.app.supervisor.datadir import Meta, meta_of
from smq.backup.files import pieces, sync_directories, write
from smq.backup.held import HeldFolder, NotWhole
from smq.model.config import INT32_MAX
from smq.model.errors import MadeByNewer

FORMAT = 1
ABOUT_BYTES_MAX = 16 * 1024 * 1024  # 60,000 names of topics, ten times what a command line has.
# A line of `files`: its number, a space, a path, its end.
_LINE_BYTES_MAX = 20 + 1 + 4096 + 1
GENERATION_MAX = INT32_MAX - 2 * 10**7  # A restore makes it greater, and starts do.
META_BYTES_MAX = 65_536  # It has five fields.
ABOUT, FILES, UNFINISHED = "snapshot.json", "files", "unfinished"
META, STORE, LOGS, FILER = "meta.json", "store.sqlite", "logs", "filer"
CLOCK, DECOYS = timeline.FILE, modes.DECOYS


@dataclass(frozen=True, slots=True)
class About:
    """The content of snapshot.json.

    topics      the included topics, as "namespace/name"; None: all
    log_ends    the position at which each log was cut, by number; empty if no broker served it
    check       CRC-32 of the file `files`
    """

    cluster_id: str
    taken_ms: int
    smq_version: str
    topics: list[str] | None
    log_ends: dict[str, int] = field(default_factory=dict)
    file_count: int = 0
    total_bytes: int = 0
    check: int = 0
    format: int = FORMAT


def begin(folder: Path) -> BinaryIO:
    """Create the folder. It may exist if it is empty or an unfinished snapshot, which is emptied.

    Nobody else may begin it until the file that is returned is closed.
    Raises FileExistsError if it has anything else, BlockingIOError if it is being taken, OSError.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    is_new = not any(folder.iterdir())
    try:
        mark = (folder / UNFINISHED).open("xb" if is_new else "rb+")
    except (FileExistsError, FileNotFoundError):
        raise FileExistsError(f"{folder} is not empty") from None
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _empty(folder)
        os.fsync(mark.fileno())
    except OSError:
        mark.close()
        raise
    return mark


def remove(folder: Path) -> None:
    """Remove an unfinished snapshot; its mark goes last. Raises OSError."""
    _empty(folder)
    (folder / UNFINISHED).unlink(missing_ok=True)
    folder.rmdir()


def _empty(folder: Path) -> None:
    for each in folder.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        elif each.name != UNFINISHED:
            each.unlink()


def finish(folder: Path, about: About) -> About:
    """List the files and complete the snapshot; returns its description."""
    own = {folder / each for each in (ABOUT, FILES, UNFINISHED)}
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path not in own)
    sizes = [path.stat().st_size for path in paths]
    lines = [
        f"{size} {path.relative_to(folder)}\n" for size, path in zip(sizes, paths, strict=True)
    ]
    listed = "".join(lines).encode()
    about = replace(about, file_count=len(paths), total_bytes=sum(sizes), check=zlib.crc32(listed))
    write(folder / FILES, listed)
    sync_directories(folder)
    write(folder / ABOUT, json.dumps(asdict(about), indent=2).encode() + b"\n")
    (folder / UNFINISHED).unlink()
    sync_directories(folder)
    return about


def read(folder: Path) -> About:
    """As read_held, of the folder at a path."""
    with HeldFolder(folder) as held:
        return read_held(held)


def read_held(held: HeldFolder) -> About:
    """Read a snapshot's description once all its files are found. Raises NotWhole, MadeByNewer."""
    folder = held.path
    if (folder / UNFINISHED).exists() or not (folder / ABOUT).exists():
        raise NotWhole(
            f"{folder} is not a complete snapshot: `smq snapshot` did not finish, or the copy is "
            "incomplete; it cannot be restored"
        )
    about, count = _about(held), _count_files(held)
    for size, name in _listed(held, about, count):
        try:
            found = (folder / name).stat().st_size
        except OSError:
            raise NotWhole(
                f"{folder} was not copied completely: it has no {name}; copy the snapshot again"
            ) from None
        if found != size:
            raise NotWhole(
                f"{folder} was not copied completely: {name} has {found} bytes, not {size}; "
                "copy the snapshot again"
            )
    return about


def read_meta(held: HeldFolder) -> Meta:
    """Its meta.json. Raises NotWhole, SystemExit with a sentence, OSError."""
    path = held.path / META
    try:
        meta = meta_of(path, held.read(path, META_BYTES_MAX))
    except FileNotFoundError:
        raise held.unlike(path, "is not there") from None
    if meta.generation > GENERATION_MAX:
        raise held.unlike(path, f"has the generation {meta.generation}")
    return meta


def _listed(held: HeldFolder, about: About, most: int) -> Iterator[tuple[int, str]]:
    """Bytes and path of each file, of which there may be so many. Raises NotWhole.

    The list is read a line at a time: it may be of millions, or say anything.
    """
    path = held.path / FILES
    damaged = NotWhole(f"{path} is missing or damaged; copy the snapshot again")
    try:
        fd = held.open(path)
    except OSError:
        raise damaged from None
    with os.fdopen(fd, "rb") as file:
        if os.fstat(fd).st_size > most * _LINE_BYTES_MAX:
            raise held.unlike(path, f"is too long a list of {most} files")
        check = 0
        for piece in pieces(fd):
            check = zlib.crc32(piece, check)
        if check != about.check:
            raise damaged
        for count, line in enumerate(iter(partial(file.readline, _LINE_BYTES_MAX), b"")):
            if count == most:
                raise held.unlike(path, f"lists more files than the {most} that are there")
            yield _of_line(path, line)


def _of_line(path: Path, line: bytes) -> tuple[int, str]:
    try:
        size, _, name = line.decode().removesuffix("\n").partition(" ")
        if "\0" in name:
            raise ValueError("no path has it")  # noqa: TRY301  (as what int refuses)
        return int(size), name
    except ValueError:
        raise NotWhole(f"{path} is no list of files; copy the snapshot again") from None


def _count_files(held: HeldFolder) -> int:
    """How many files there are. A link would restore, and publish, a file that is not the
    snapshot's. Raises NotWhole.

    Its owner may make one later: who opens the files looks again.
    """
    count = 0
    for home, directories, files in os.walk(held.path):
        count += len(files)
        for name in (*directories, *files):
            mode = Path(home, name).lstat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise held.refused(Path(home, name))
    return count


def _about(held: HeldFolder) -> About:
    path = held.path / ABOUT
    try:
        fields = json.loads(held.read(path, ABOUT_BYTES_MAX))
        version = fields["format"]
        if isinstance(version, int) and version > FORMAT:
            why = f"its format is {version}, this SMQ knows up to {FORMAT}"
            raise MadeByNewer(str(path), why)
        about = About(**fields)
        is_whole = _has_types(about)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise NotWhole(f"{path} is damaged; copy the snapshot again")
    return about


def _has_types(about: About) -> bool:
    """Whether each field is what the class says. Raises TypeError or AttributeError if not."""
    texts: tuple[Any, ...] = about.cluster_id, about.smq_version, *(about.topics or ())
    counts = about.taken_ms, about.file_count, about.total_bytes, about.check, about.format
    lists: Any = about.topics
    return (
        isinstance(lists, list | None)
        and all(isinstance(each, str) for each in (*texts, *about.log_ends))
        and all(type(each) is int for each in (*counts, *about.log_ends.values()))
    )
