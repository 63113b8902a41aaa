"""Since which sweep a filer's files have been without a name in the manifest.

    sweep 1   sees a, b      deletes nothing
    sweep 2   sees a, c      deletes a: it was seen an interval ago, and is still unnamed

A file's own time cannot tell its age: it is of the filer's clock, and a clock may be set. A sweep
begins an interval after the end of the one before, by a clock that cannot be set; so two sightings
in a row are an interval apart. A new sealer knows of none: files stay longer then, never shorter.
"""

from collections.abc import Iterable

NAMES_MAX = 100_000  # Some 15 MB. Others wait for a later sweep, when these are gone.


class Sightings:
    """The names that the last sweep has seen, and those that the current one has."""

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._before: set[str] = set()
        self._now: set[str] = set()

    def take(self, names: Iterable[str]) -> list[str]:
        """Note names of the current sweep; returns those that the last one has seen too."""
        again = []
        for name in names:
            if name in self._before:
                again.append(name)
            if len(self._now) < self._names_max:
                self._now.add(name)
        return again

    def end(self) -> None:
        """End the current sweep."""
        self._before, self._now = self._now, set()
