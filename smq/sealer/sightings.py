"""Since which sweep a filer's files have been without a name in the manifest.

    sweep 1   sees a, b      deletes nothing
    sweep 2   sees a, c      deletes a: it was seen an interval ago, and is still unnamed

A file's own time cannot tell its age: it is of the filer's clock, and a clock may be set. A sweep
begins an interval after the end of the one before, by a clock that cannot be set; so two sightings
in a row are an interval apart. A new sealer knows of none: files stay longer then, never shorter.
"""

from collections.abc import Iterable, Mapping

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


class Untouched:
    """Unfinished writes: since when each has the same time of its last touch.

    The filer's times only tell whether a write goes on. How long it has not is our clock's.
    """

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, int]] = {}  # The filer's time, and ours at its sight.

    def idle(self, before_ms: int) -> dict[str, int]:
        """Those that nobody has touched since `before_ms` at least, and the filer's time."""
        return {
            name: touched_ms
            for name, (touched_ms, since_ms) in self._since.items()
            if since_ms <= before_ms
        }

    def see(self, there: Mapping[str, int], now_ms: int) -> None:
        """Note all that are there now; others are forgotten."""
        before = self._since
        self._since = {}
        for name, touched_ms in there.items():
            last = before.get(name)
            is_same = last is not None and last[0] == touched_ms
            self._since[name] = last if last and is_same else (touched_ms, now_ms)
