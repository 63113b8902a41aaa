"""Which starts of a log may have lost acknowledged records, by level of durability.

    memory   a start with fresh memory: the supervisor had died
    os       one on another boot of the machine: the page cache was lost
    disk     one that found damage, or less than what is sealed; what is found later is known by its
             place (Led.may_have_lost)

The coordinator asks for it before it commits a transaction that a power loss must not tear
(smq.coordinator.transactions.endings): the log itself does not show what is missing at its end.

The file `boot`: the boot id, then int64 little endian: the generation that wrote it, and for each
level the newest generation whose start may have lost something (-1: none). It is durable before the
start serves. Raising a partition's level makes its former one's losses those of the new one, of the
whole log. With only a boot id, as a restore writes it, what was lost before is unknown.
"""

import struct
from pathlib import Path

from shm.kernels.base.words import DURABILITY_DISK, DURABILITY_MEMORY, DURABILITY_OS
from smq.log.files.disk import Disk

BOOT_FILE = "boot"
LEVELS = (DURABILITY_MEMORY, DURABILITY_OS, DURABILITY_DISK)
NEVER = -1
_FACTS = struct.Struct(f"<{1 + len(LEVELS)}q")
assert list(LEVELS) == sorted(LEVELS)


class Losses:
    """The losses of one log.

    is_same_boot   the machine has not been booted since the last start: the page cache has
                   everything written
    is_saved       the file says what is known. Until then the next start takes this one for a loss

    Raises OSError if the file cannot be read: a start on an unknown boot may cut the log.
    """

    def __init__(self, directory: Path, boot_id: bytes) -> None:
        self._path, self._boot_id = directory / BOOT_FILE, boot_id
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            data = b""
        self.is_same_boot = data[: len(boot_id)] == boot_id
        self.is_saved = False
        self._written_by: int | None = None
        self._newest = [NEVER] * len(LEVELS)
        if len(data) == len(boot_id) + _FACTS.size:
            self._written_by, *self._newest = _FACTS.unpack_from(data, len(boot_id))

    def begin(self, generation: int, before: int | None, *, is_damaged: bool) -> None:
        """A start, in a new generation; `before` is that of the start whose memory was kept, None:
        it was not kept."""
        lost = NEVER
        if before is None:
            lost = DURABILITY_MEMORY
        if not self.is_same_boot or self._written_by is None:
            lost = DURABILITY_OS
        if before is not None and self._written_by != before:  # That start could not write it.
            lost = DURABILITY_OS
        if is_damaged:
            lost = DURABILITY_DISK
        self._newest = [
            generation if level <= lost else newest
            for level, newest in zip(LEVELS, self._newest, strict=True)
        ]
        self._written_by = generation
        self.is_saved = False

    def save(self, disk: Disk) -> None:
        """Write the file. Raises OSError."""
        assert self._written_by is not None
        disk.replace(self._path, self._boot_id + _FACTS.pack(self._written_by, *self._newest))
        self.is_saved = True

    def raised(self, before: int, level: int) -> None:
        """A partition of level `before` has a higher one from now on: what was lost of that level
        may be lost of this one."""
        for each in LEVELS:
            if before < each <= level:
                self._newest[each] = max(self._newest[each], self._newest[before])
        self.is_saved = False

    def lost_synced(self) -> None:
        """This start has lost what was on disk: records of any level."""
        assert self._written_by is not None
        self._newest = [self._written_by] * len(LEVELS)
        self.is_saved = False

    def since(self, level: int, generation: int) -> bool:
        """Whether a start later than this generation may have lost records of a level."""
        return self._newest[level] > generation
