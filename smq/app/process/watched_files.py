"""What files hold that the operator may replace while a process runs: keys, certificates, tokens.

They are read again when one of them changes. Files that cannot be used leave what was read before.
Where a broker that has served starts a process again, they leave what lets nobody in, so that all
else is served.
"""

import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from smq.model.named_files import UnusableNamedFile

ValueT = TypeVar("ValueT")


class UnusableFile(ValueError):
    """A file that nobody could get in with; a sentence."""


class Sentences(NamedTuple):
    """What the operator is told.

    again    changed files have been read
    stays    they cannot be used, and what was read before is still in use
    nobody   they cannot be used, and nothing was read before
    """

    again: str
    stays: str
    nobody: str


class WatchedFiles(Generic[ValueT]):
    """`value` is what they held when they could be used last; `look` reads changed ones again."""

    def __init__(
        self,
        files: Callable[[], Iterable[Path]],
        read: Callable[[], ValueT],
        sentences: Sentences,
        say: Callable[[str], None],
        nothing: ValueT | None = None,
    ) -> None:
        """Raises UnusableFile, as `read` does, unless there is a value for `nothing`."""
        self._files, self._read, self._sentences, self._say = files, read, sentences, say
        self._seen, self._otherwise = self._marks(), sentences.stays
        self._tries_again = False
        try:
            self.value = read()
        except UnusableFile as reason:
            if nothing is None:
                raise
            self._tries_again = _may_pass(reason)
            self.value, self._otherwise = nothing, sentences.nobody
            say(f"{reason}; {sentences.nobody}")

    def look(self) -> None:
        """Use files that have changed. Called about once a second.

        What could not be read is tried again: the process may have had no descriptor. What was read
        is not, before it changes: a key with a password takes its time.
        """
        marks = self._marks()
        if marks == self._seen and not self._tries_again:
            return
        has_changed, self._seen, self._tries_again = marks != self._seen, marks, False
        try:
            self.value = self._read()
        except UnusableFile as reason:
            self._tries_again = _may_pass(reason)
            if has_changed:
                self._say(f"{reason}; {self._otherwise}")
        else:
            self._otherwise = self._sentences.stays
            self._say(self._sentences.again)

    def _marks(self) -> list[tuple[int, int, int]]:
        """What changes when a file is written or replaced."""
        found = []
        for path in self._files():
            try:
                status = path.stat()
                found.append((status.st_ino, status.st_size, status.st_ctime_ns))
            except OSError:
                found.append((0, 0, 0))
        return found


def _may_pass(reason: UnusableFile) -> bool:
    """Whether the file could not be read, and what it holds is not the fault."""
    cause = reason.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError | UnusableNamedFile)
