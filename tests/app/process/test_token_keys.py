"""The keys of an issuer, from a file that changes."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from smq.app.process.clock import wall_ms
from smq.app.process.token_keys import (
    FILE_BYTES_MAX,
    NOBODY,
    STAYS,
    UnusableTokens,
    WatchedTokens,
    why_no_tokens,
    why_unusable,
)
from smq.model.config import Config
from smq.security.listeners import Listener, listeners_of
from smq.security.tokens import InvalidToken
from tests.model.configs import config_of
from tests.security.issuer import AUDIENCE, ISSUER, claims_of, published, token, write_jwks

SETTING = r"sasl.oauthbearer.jwks.endpoint.url \(SASL_SSL\): "


def configured(url: str, **given: Any) -> tuple[Config, Listener]:
    named = {f"sasl.oauthbearer.{name.replace('_', '.')}": each for name, each in given.items()}
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:1",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.audience": f" , others,{AUDIENCE} ",
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    config = config_of(command_line=settings | named)
    assert isinstance(config, Config)
    [listener] = listeners_of(config)
    return config, listener


def watched(said: list[str], url: str, **given: Any) -> WatchedTokens:
    return WatchedTokens(*configured(url, **given), said.append)


def signed(key: str = "rsa", **claims: Any) -> str:
    return token(claims_of(wall_ms() / 1000, **claims), key=key)


def takes(tokens: WatchedTokens, text: str) -> bool:
    try:
        return tokens.tokens.holder_of(text).user == "alice"
    except InvalidToken:
        return False


def test_tokens_are_checked_as_the_settings_say(tmp_path: Path) -> None:
    url = write_jwks(tmp_path / "keys of an issuer.json", "rsa")
    given = {"sub_claim_name": "email", "scope_claim_name": "scp", "clock_skew_seconds": "0"}
    tokens = watched([], url, **given)
    assert "%20" in url
    assert takes(tokens, signed(email="alice", scope=["a", "a"]))
    assert not takes(tokens, signed(email="alice", scp=["a", "a"]))
    assert not takes(tokens, signed(email="alice", nbf=wall_ms() // 1000 + 9))
    assert takes(watched([], url), signed(nbf=wall_ms() // 1000 + 9))
    assert not takes(watched([], url), signed(aud=""))


def test_changed_keys_are_used_and_bad_ones_are_not(tmp_path: Path) -> None:
    path, said = tmp_path / "jwks.json", list[str]()
    tokens = watched(said, write_jwks(path, "rsa"))
    holder = tokens.tokens.holder_of(signed())
    assert not tokens.look()
    assert said == []
    path.write_text("{}")
    assert not tokens.look()
    path.unlink()
    assert not tokens.look()
    assert not tokens.look()
    assert len(said) == 2
    assert "is no JWKS that can be used: it has no list `keys`" in said[0]
    assert all(each.endswith("; the keys from before stay in use") for each in said)
    assert takes(tokens, signed())
    assert holder.is_current()
    write_jwks(path, "rsa other")
    assert tokens.look()
    assert not tokens.look()
    assert not holder.is_current()
    assert said[2].endswith("(SASL_SSL): the keys have been read again")
    assert not takes(tokens, signed())
    assert takes(tokens, signed("rsa other"))


def test_once_the_broker_has_served_a_bad_file_takes_no_token_until_it_is_good(
    tmp_path: Path,
) -> None:
    path, said = tmp_path / "jwks.json", list[str]()
    configuration = configured(path.as_uri())
    tokens = WatchedTokens(*configuration, said.append, has_served=True)
    path.write_text("{}")
    tokens.look()
    assert not takes(tokens, signed())
    assert [each.endswith(f"; {NOBODY}") for each in said] == [True, True]
    write_jwks(path, "rsa")
    tokens.look()
    assert takes(tokens, signed())
    path.write_text("{}")
    tokens.look()
    assert takes(tokens, signed())
    assert said[-1].endswith(f"; {STAYS}")


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    large, nothing, pipe = (tmp_path / each for each in ("large", "nothing", "pipe"))
    os.mkfifo(pipe)
    large.write_text(published("rsa") + " " * FILE_BYTES_MAX)
    nothing.write_bytes(b"")
    for path, why in (
        (tmp_path / "none", "cannot be read: .*No such file"),
        (tmp_path, "cannot be read: .*Is a directory"),
        (large, f"cannot be read: it has over {FILE_BYTES_MAX} bytes"),
        (pipe, "cannot be read: it is no file, but a pipe"),
        (nothing, "is no JWKS that can be used: it is no JSON object"),
    ):
        with pytest.raises(UnusableTokens, match=f"{SETTING}{path} {why}"):
            watched([], path.as_uri())


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "joserfc.jwk", None)
    monkeypatch.delitem(sys.modules, "smq.security.jwks", raising=False)
    with pytest.raises(UnusableTokens, match=r"OAUTHBEARER needs `pip install smq-broker\[sec"):
        watched([], write_jwks(tmp_path / "jwks.json", "rsa"))


def test_a_start_hears_the_reason_why_tokens_cannot_be_checked(tmp_path: Path) -> None:
    config, listener = configured((tmp_path / "none").as_uri())
    assert "cannot be read" in why_no_tokens(config, listener)
    assert why_unusable(config, listener) == why_no_tokens(config, listener)
    assert why_no_tokens(*configured(write_jwks(tmp_path / "jwks.json", "rsa"))) == ""
    for more in ({"sasl.enabled.mechanisms": "PLAIN"}, {"listeners": "PLAINTEXT://127.0.0.1:1"}):
        other = config_of(command_line={"listeners": "SASL_SSL://127.0.0.1:1"} | more)
        assert isinstance(other, Config)
        [listener] = listeners_of(other)
        assert why_no_tokens(other, listener) == ""
