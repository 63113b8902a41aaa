"""The tokens that open /metrics: the setting's, or those of a file, one a line. The file is read
again when it changes; one that cannot be used leaves the tokens from before, or none where a
restarted process has none.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from smq.app.process.watched_files import Sentences, UnusableFile, WatchedFiles
from smq.model.config import Config
from smq.model.named_files import read_named

FILE_BYTES_MAX = 4096
STAYS = "the tokens from before stay in use"
NOBODY = "nobody reads /metrics until it can be used; all else is served"
_SETTING = "metrics.tokens.location"


class UnusableTokenFile(UnusableFile):
    """Nobody could read /metrics; a sentence."""


class WatchedMetricsTokens:
    """The tokens of the moment; `look` reads a changed file again."""

    def __init__(
        self, config: Config, say: Callable[[str], None], *, has_served: bool = False
    ) -> None:
        """Raises UnusableTokenFile, unless the broker `has_served`: then no token is good until the
        file can be used."""
        self._token, self._watched = config.metrics_token, None
        if config.metrics_tokens_location:
            path = Path(config.metrics_tokens_location)
            self._watched = WatchedFiles[tuple[str, ...]](
                lambda: [path],
                partial(_read, path),
                Sentences(f"{_SETTING}: the tokens have been read again", STAYS, NOBODY),
                say,
                () if has_served else None,
            )

    @property
    def tokens(self) -> tuple[str, ...] | None:
        """One of them is asked for; None: /metrics needs none."""
        if self._watched is not None:
            return self._watched.value
        return (self._token,) if self._token else None

    def look(self) -> None:
        """Use a file that has changed. Called about once a second."""
        if self._watched is not None:
            self._watched.look()


def why_no_metrics_tokens(config: Config) -> str:
    """Why nobody could read /metrics, which its file should allow; "": all is well."""
    try:
        WatchedMetricsTokens(config, lambda _: None)
    except UnusableTokenFile as reason:
        return str(reason)
    return ""


def _read(path: Path) -> tuple[str, ...]:
    try:
        data = read_named(path, FILE_BYTES_MAX)
    except OSError as reason:
        raise UnusableTokenFile(f"{_SETTING}: {path} cannot be read: {reason}") from reason
    try:
        tokens = tuple(line for each in data.decode("ascii").splitlines() if (line := each.strip()))
    except UnicodeDecodeError:
        raise UnusableTokenFile(f"{_SETTING}: {path} has other characters than ASCII") from None
    if not tokens:
        raise UnusableTokenFile(f"{_SETTING}: {path} has no token")
    return tokens
