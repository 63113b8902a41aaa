"""The tokens that open /metrics: the setting's, or those of a file, one a line. The file is read
again when it changes; one that cannot be used leaves the tokens from before, or none where a
restarted process has none.
"""

from collections.abc import Callable
from pathlib import Path

from smq.model.config import Config

FILE_BYTES_MAX = 4096
STAYS = "the tokens from before stay in use"
NOBODY = "nobody reads /metrics until it can be used; all else is served"
_SETTING = "metrics.tokens.location"


class UnusableTokenFile(ValueError):
    """Nobody could read /metrics; a sentence."""


class WatchedMetricsTokens:
    """The tokens of the moment; `look` reads a changed file again.

    tokens   one of them is asked for; None: /metrics needs none
    """

    def __init__(
        self, config: Config, say: Callable[[str], None], *, has_served: bool = False
    ) -> None:
        """Raises UnusableTokenFile, unless the broker `has_served`: then no token is good until the
        file can be used."""
        self._path, self._say = config.metrics_tokens_location, say
        self.tokens: tuple[str, ...] | None = None
        if config.metrics_token:
            self.tokens = (config.metrics_token,)
        if not self._path:
            return
        self._seen, self._otherwise = self._marks(), STAYS
        try:
            self.tokens = _read(Path(self._path))
        except UnusableTokenFile as reason:
            if not has_served:
                raise
            self.tokens, self._otherwise = (), NOBODY
            say(f"{reason}; {NOBODY}")

    def look(self) -> None:
        """Use a file that has changed. Called about once a second."""
        if not self._path or self._marks() == self._seen:
            return
        self._seen = self._marks()
        try:
            self.tokens = _read(Path(self._path))
        except UnusableTokenFile as reason:
            self._say(f"{reason}; {self._otherwise}")
        else:
            self._otherwise = STAYS
            self._say(f"{_SETTING}: the tokens have been read again")

    def _marks(self) -> tuple[int, int, int]:
        """What changes when the file is written or replaced."""
        try:
            status = Path(self._path).stat()
        except OSError:
            return 0, 0, 0
        return status.st_ino, status.st_size, status.st_ctime_ns


def why_no_metrics_tokens(config: Config) -> str:
    """Why nobody could read /metrics, which its file should allow; "": all is well."""
    try:
        WatchedMetricsTokens(config, lambda _: None)
    except UnusableTokenFile as reason:
        return str(reason)
    return ""


def _read(path: Path) -> tuple[str, ...]:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as reason:
        raise UnusableTokenFile(f"{_SETTING}: {path} cannot be read: {reason}") from reason
    if len(data) > FILE_BYTES_MAX:
        raise UnusableTokenFile(f"{_SETTING}: {path} has over {FILE_BYTES_MAX} bytes")
    try:
        tokens = tuple(line for each in data.decode("ascii").splitlines() if (line := each.strip()))
    except UnicodeDecodeError:
        raise UnusableTokenFile(f"{_SETTING}: {path} has other characters than ASCII") from None
    if not tokens:
        raise UnusableTokenFile(f"{_SETTING}: {path} has no token")
    return tokens
