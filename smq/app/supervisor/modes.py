"""Who may look into a broker's files: its own user, and with `filer.mode` a group, into the filer.

    umask 077, or 027 with filer.mode=0750   what the broker and its children make
    <data>/audit  cache  logs  pins  tables  0700, whatever an earlier version or a volume made them
    <data>/store.sqlite …                    0600
    <data>/iceberg.sqlite                    0600, or 0640: the catalog of lake tables
    <filer.root>/topics  payloads  …         filer.mode

The data directory itself may be somebody else's: a volume's root belongs to root, and Kubernetes
opens it to the pod's group (`fsGroup`). So all that holds records lies in directories of our own.
Files of the filer that were sealed under another mode keep it.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from smq.filer.local import UNFINISHED
from smq.model.config import GROUP_READS, Config
from smq.model.references import PREFIX
from smq.model.segments import SEGMENTS_PREFIX
from smq.sealer.lake.catalog import FILE_NAME as CATALOG

_OTHERS = 0o077
_SPECIAL = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX  # A set-group-id bit hands the group down.
OWN = ("cache", "logs", "tables")
LEFT = ("audit", "pins")  # There with an audit log; while a snapshot is taken, or left by one.
DECOYS = "decoys.secret"
FILES = ("store.sqlite", "store.sqlite-wal", "store.sqlite-shm", "status.json", DECOYS)
_FILER = (UNFINISHED, PREFIX.rstrip("/"), SEGMENTS_PREFIX.rstrip("/"))


def set_umask(config: Config) -> None:
    """Decide who may read the files that this process and its forks make."""
    os.umask(_OTHERS & ~int(config.filer_mode, 8))


def close_to_others(config: Config) -> None:
    """Give what a start finds the modes above. Raises OSError.

    Raises SystemExit if another user but root made any of it: he could read what is written there.
    """
    mode = int(config.filer_mode, 8)
    for name in OWN:
        (config.data_dir / name).mkdir(mode=0o700, exist_ok=True)
    for name in (*OWN, *LEFT):
        _set(config.data_dir / name, 0o700)
    for name in FILES:
        _set(config.data_dir / name, 0o600)
    _set(config.data_dir / CATALOG, mode & 0o666)
    for path in _filer_directories(config):
        _set(path, mode)
    if config.filer_mode == GROUP_READS and config.filer_lies_in_data_dir:
        _let_the_group_through(config.data_dir)


def passes_by_rules(config: Config) -> str:
    """Who reads payloads and sealed records whatever access rules say, beside the broker's user; a
    sentence, or ""."""
    if not config.authorizer_class_name:
        return ""
    if not config.filer_is_local:
        return (
            f"filer.root: who has keys of {config.filer_root} reads payloads and sealed records "
            "whatever access rules say"
        )
    if config.filer_mode == GROUP_READS:
        return (
            f"filer.mode: group {os.getegid()} reads payloads and sealed records whatever access "
            "rules say"
        )
    return ""


def _filer_directories(config: Config) -> Iterator[Path]:
    if config.filer_is_local:
        root = Path(config.filer_root)
        if config.filer_lies_in_data_dir:  # Elsewhere the operator made it, for whom he likes.
            yield root
        yield from (root / name for name in _FILER)


def _set(path: Path, mode: int) -> None:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):  # Who uses the latter says that.
        return
    if stat.S_ISLNK(found.st_mode):  # The operator's, in a filer elsewhere.
        return
    if found.st_uid != os.geteuid():
        _refuse_foreign(path, found.st_uid)
    elif found.st_mode & 0o777 != mode:
        path.chmod(found.st_mode & _SPECIAL | mode)


def _refuse_foreign(path: Path, owner: int) -> None:
    if owner != 0 and os.geteuid() != 0:
        raise SystemExit(
            f"smq: {path} belongs to user {owner}, who could read what is kept there; "
            f"`chown -R` it to the broker's user, or choose another directory with --data-dir"
        )


def _let_the_group_through(directory: Path) -> None:
    found = directory.stat()
    if found.st_uid == os.geteuid():
        directory.chmod(stat.S_IMODE(found.st_mode) | stat.S_IXGRP)
