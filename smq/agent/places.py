"""Where the partitions of an agent's session start: as it says, or where their group has been; and
where a seek leads."""

from collections.abc import Mapping

from smq.model.offset_types import OffsetType, WantedPlace, resumes


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


def sought(kind: int, number: int) -> WantedPlace:
    """The place that a seek names by one number: a time, or an offset.

    A stream that is open has nothing to resume. So these types, of which one is what a client says
    who gives none, mean the offset, as in SeaweedMQ.
    """
    if kind == OffsetType.EXACT_TS_NS:
        return WantedPlace(kind, ts_ns=number)
    wanted = WantedPlace(kind, number)
    return wanted._replace(type=OffsetType.EXACT_OFFSET) if resumes(wanted) else wanted
