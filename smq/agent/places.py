"""Where the partitions of an agent's session start: as it says, or where their group has been."""

from collections.abc import Mapping

from smq.model.offset_types import OffsetType, WantedPlace


class SessionStarts:
    """The starts that an agent session asks for, by partition. They hold at the first assignment of
    a partition; one that comes again resumes, and so does one without an entry."""

    def __init__(self, entries: Mapping[int, WantedPlace], otherwise: WantedPlace) -> None:
        self._entries, self._otherwise = dict(entries), otherwise
        self._given: set[int] = set()

    def take(self, partition: int, *, taken_over: bool) -> WantedPlace:
        """What holds for a partition that is assigned now; `taken_over`: from another instance."""
        is_first = partition not in self._given
        self._given.add(partition)
        if not is_first or taken_over:
            return WantedPlace(OffsetType.RESUME_OR_EARLIEST)
        return self._entries.get(partition, self._otherwise)
