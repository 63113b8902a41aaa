"""The tokens of /metrics, from the setting or from a file that changes."""

import os
from pathlib import Path

import pytest

from smq.app.process.metrics_tokens import (
    FILE_BYTES_MAX,
    NOBODY,
    STAYS,
    UnusableTokenFile,
    WatchedMetricsTokens,
    why_no_metrics_tokens,
)
from smq.model.config import Config


def of_file(path: Path) -> Config:
    return Config(metrics_tokens_location=str(path))


def test_without_settings_no_token_is_asked_for() -> None:
    watched = WatchedMetricsTokens(Config(), pytest.fail)
    watched.look()
    assert watched.tokens is None


def test_a_setting_is_the_only_token() -> None:
    watched = WatchedMetricsTokens(Config(metrics_token="secret"), pytest.fail)
    watched.look()
    assert watched.tokens == ("secret",)


def test_changed_tokens_are_used_and_bad_ones_are_not(tmp_path: Path) -> None:
    path, said = tmp_path / "tokens", list[str]()
    path.write_text("old\n")
    watched = WatchedMetricsTokens(of_file(path), said.append)
    watched.look()
    assert (watched.tokens, said) == (("old",), [])
    path.write_text("  old \r\n\nnew")
    watched.look()
    assert watched.tokens == ("old", "new")
    assert said == ["metrics.tokens.location: the tokens have been read again"]
    path.write_text("\n")
    watched.look()
    path.unlink()
    watched.look()
    watched.look()
    os.mkfifo(path)
    watched.look()
    assert watched.tokens == ("old", "new")
    assert len(said) == 4
    assert "it is no file, but a pipe" in said[3]
    assert all(each.endswith(f"; {STAYS}") for each in said[1:])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "has no token"),
        (b" \n\n", "has no token"),
        ("t\u00f6ken".encode(), "other characters than ASCII"),
        (b"x" * (FILE_BYTES_MAX + 1), "has over 4096 bytes"),
        (None, "cannot be read"),
    ],
    ids=["empty", "blank", "umlaut", "large", "missing"],
)
def test_a_file_without_tokens_is_refused_at_a_start_and_opens_nothing_later(
    data: bytes | None, words: str, tmp_path: Path
) -> None:
    path, said = tmp_path / "tokens", list[str]()
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UnusableTokenFile, match=words):
        WatchedMetricsTokens(of_file(path), said.append)
    assert words in why_no_metrics_tokens(of_file(path))
    watched = WatchedMetricsTokens(of_file(path), said.append, has_served=True)
    known = [watched.tokens]
    assert known == [()], "None would open it"
    assert said[0].endswith(f"; {NOBODY}")
    path.write_text("new")
    watched.look()
    known.append(watched.tokens)
    assert known[1:] == [("new",)]
    assert why_no_metrics_tokens(of_file(path)) == ""
