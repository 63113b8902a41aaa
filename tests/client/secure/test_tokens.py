"""Where clients' tokens come from."""

import json
import os
import pickle
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from smq.client.clock import SYSTEM_CLOCK
from smq.client.errors import AuthenticationFailed, BrokerUnavailable
from smq.client.secure import tokens as module
from smq.client.secure.tokens import (
    ANSWER_BYTES_MAX,
    EARLY_SECONDS_MAX,
    ENDPOINT_SECONDS_MAX,
    TOKEN_BYTES_MAX,
    Callback,
    TokenEndpoint,
    TokenFile,
    TokenSource,
    why_no_endpoint,
)
from tests.security.tls_bench import make_files

SECRET = "s3cret: with = and \u00fc"


class SteppedClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def monotonic_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_ns(self) -> int:
        return int(self.now_s * 1e9)

    def wall_ms(self) -> int:
        return 1_800_000_000_000 + self.monotonic_ms()

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


def refusal(source: TokenSource, clock: SteppedClock) -> str:
    with pytest.raises(AuthenticationFailed) as failure:
        source.token(clock)
    assert "s3cret" not in str(failure.value)
    return str(failure.value)


def test_a_callback_is_asked_again_when_most_of_a_tokens_life_is_over(clock: SteppedClock) -> None:
    asked: list[str] = []

    def give(config: str) -> tuple[Any, ...]:
        asked.append(config)
        return f"token-{len(asked)}", clock.wall_ms() / 1000 + 100, "principal", {}

    source = Callback(give, "a=b")
    assert [source.token(clock), source.token(clock)] == ["token-1", "token-1"]
    clock.now_s += 79
    assert source.token(clock) == "token-1"
    clock.now_s += 1
    assert source.token(clock) == "token-2"
    assert asked == ["a=b", "a=b"]


@pytest.mark.parametrize("ends_s", [0, float("nan"), float("inf"), -1])
def test_a_token_that_has_no_life_is_used_once(clock: SteppedClock, ends_s: float) -> None:
    given = iter(["one", "two"])
    source = Callback(lambda _: (next(given), ends_s))
    assert [source.token(clock), source.token(clock)] == ["one", "two"]


@pytest.mark.parametrize(
    "given", [("s3cret\n", 0), ("s3cret\1", 0), ("", 0), (5, 0), ("x" * (TOKEN_BYTES_MAX + 1), 0)]
)
def test_a_text_that_is_no_token_is_refused(clock: SteppedClock, given: tuple[Any, Any]) -> None:
    assert refusal(Callback(lambda _: given), clock).endswith(": oauth_cb gives no token")


def test_a_callback_that_fails_is_a_failed_login(clock: SteppedClock) -> None:
    def raises(_config: str) -> tuple[Any, ...]:
        raise KeyError("s3cret")

    assert "oauth_cb has raised KeyError" in refusal(Callback(raises), clock)
    for wrong in ((), ("token",), None, ("token", "soon")):

        def returns(_config: str, given: Any = wrong) -> Any:
            return given

        assert "it should return a token" in refusal(Callback(returns), clock)


def test_a_file_is_read_for_each_connection(tmp_path: Path, clock: SteppedClock) -> None:
    path = tmp_path / "token"
    source = TokenFile(str(path))
    assert f"the file {path} cannot be read" in refusal(source, clock)
    for text in ("one", " two\n"):
        path.write_text(text)
        assert source.token(clock) == text.strip()
    for wrong in ("", "s3cret s3cret", "s3cret\N{SNOWMAN}"):
        path.write_text(wrong)
        assert refusal(source, clock).endswith(f": the file {path} gives no token")
    path.write_text("x" * (TOKEN_BYTES_MAX + 1))
    assert f"cannot be read: it has over {TOKEN_BYTES_MAX} bytes" in refusal(source, clock)
    path.unlink()
    os.mkfifo(path)
    assert "cannot be read: it is no file, but a pipe" in refusal(source, clock)


class Issuer(HTTPServer):
    """Answers with `answer`, a status and a body, and notes what it is asked."""

    answer: tuple[int, bytes] = (200, b"{}")

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/token?realm=a"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        issuer = self.server
        assert isinstance(issuer, Issuer)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        issuer.asked.append((self.path, self.headers["Authorization"], body))
        status, said = issuer.answer
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        try:
            self.wfile.write(said)
        except OSError:  # The client has heard enough.
            return

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    with Issuer() as issuer:
        if context is not None:
            issuer.socket = context.wrap_socket(issuer.socket, server_side=True)
        thread = threading.Thread(target=issuer.serve_forever)
        thread.start()
        try:
            yield issuer
        finally:
            issuer.shutdown()
            thread.join()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving() as made:
        yield made


def test_an_endpoint_is_asked_as_kafkas_clients_ask_it(issuer: Issuer, clock: SteppedClock) -> None:
    source = TokenEndpoint(issuer.url, "smq-client", "s3cret", "a b")
    issuer.answer = 200, json.dumps({"access_token": "one", "expires_in": 100}).encode()
    assert source.token(clock) == "one"
    issuer.answer = 200, json.dumps({"access_token": "two"}).encode()
    clock.now_s += 79
    assert source.token(clock) == "one"
    clock.now_s += 1
    assert source.token(clock) == "two"
    assert issuer.asked[0] == (
        "/token?realm=a",
        "Basic c21xLWNsaWVudDpzM2NyZXQ=",
        b"grant_type=client_credentials&scope=a+b",
    )


def test_a_secret_may_have_any_letters(issuer: Issuer, clock: SteppedClock) -> None:
    issuer.answer = 200, b'{"access_token": "one"}'
    assert TokenEndpoint(issuer.url, "a", SECRET).token(clock) == "one"
    assert issuer.asked[0][2] == b"grant_type=client_credentials"


@pytest.mark.parametrize(
    ("status", "said", "words"),
    [
        (401, b'{"error": "invalid_client"}', "answers 401 (invalid_client); check the client's"),
        (400, b'{"error": "s3cret S3CRET"}', "answers 400; check the client's id and secret"),
        (302, b"", "answers 302; check"),
        (200, b"<html>s3cret</html>", "gives no token"),
        (200, b"[" * 50_000, "gives no token"),
        (200, b'{"access_token": 5}', "gives no token"),
        (200, b" " * (ANSWER_BYTES_MAX + 1), "answers without end"),
    ],
    ids=["client", "other", "redirect", "page", "deep", "number", "endless"],
)
def test_an_answer_without_a_token_is_a_failed_login(
    issuer: Issuer, clock: SteppedClock, status: int, said: bytes, words: str
) -> None:
    issuer.answer = status, said
    source = TokenEndpoint(issuer.url, "a", "s3cret")
    assert f"the token endpoint at 127.0.0.1 {words}" in refusal(source, clock)
    assert len(issuer.asked) == 1


def test_an_endpoint_that_is_away_may_be_asked_later(clock: SteppedClock) -> None:
    with serving() as issuer:
        source = TokenEndpoint(issuer.url, "a", "s3cret")
        issuer.answer = 503, b""
        with pytest.raises(BrokerUnavailable, match="answers 503"):
            source.token(clock)
    with pytest.raises(BrokerUnavailable, match=r"the token endpoint at 127\.0\.0\.1 does not"):
        source.token(clock)


def test_a_good_token_is_used_while_there_is_no_other(issuer: Issuer, clock: SteppedClock) -> None:
    """The endpoint is asked again after a while, and its refusal told when the token has ended."""
    source = TokenEndpoint(issuer.url, "a", "s3cret")
    issuer.answer = 200, json.dumps({"access_token": "one", "expires_in": 1000}).encode()
    assert source.token(clock) == "one"
    for count, answer in enumerate(((503, b""), (401, b""), (200, b"")), 2):
        issuer.answer = answer
        clock.now_s += 800 if count == 2 else 1
        for _ in range(2):
            assert source.token(clock) == "one"
            assert len(issuer.asked) == count
            clock.now_s += 4.5
    issuer.answer = 401, b""
    clock.now_s += 116
    assert source.token(clock) == "one"
    clock.now_s += 6
    assert "answers 401" in refusal(source, clock)
    issuer.answer = 200, json.dumps({"access_token": "two", "expires_in": 1000}).encode()
    assert source.token(clock) == "two"
    clock.now_s += 799
    assert source.token(clock) == "two"


def test_a_slow_endpoint_is_not_waited_for_while_there_is_a_good_token(
    issuer: Issuer, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TokenEndpoint(issuer.url, "a", "s3cret")
    issuer.answer = 200, json.dumps({"access_token": "one", "expires_in": 1000}).encode()
    assert source.token(clock) == "one"
    waited = []

    def slow(*asked: Any) -> tuple[int, bytes]:
        waited.append(asked[-1].left_s())
        raise TimeoutError

    monkeypatch.setattr(module, "posted", slow)
    for wait_s in (800, 9):
        clock.now_s += wait_s
        assert source.token(clock) == "one"
    clock.now_s += 200
    with pytest.raises(BrokerUnavailable, match="gives no whole answer in 10 seconds"):
        source.token(clock)
    assert waited == [EARLY_SECONDS_MAX, ENDPOINT_SECONDS_MAX]


def test_an_endpoints_certificate_is_verified(tmp_path: Path, clock: SteppedClock) -> None:
    files = make_files(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    said = "# Authorities may have names like F\N{LATIN SMALL LETTER O WITH DOUBLE ACUTE}.\n"
    files.authority.write_bytes(said.encode() + files.authority.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.broker)
    with serving(context) as issuer:
        issuer.answer = 200, b'{"access_token": "one"}'
        url = f"https://localhost:{issuer.server_port}/"
        assert TokenEndpoint(url, "a", "s3cret", "", str(files.authority)).token(clock) == "one"
        for authorities in ("", str(tmp_path / "none"), str(tmp_path / "pipe")):
            with pytest.raises(BrokerUnavailable, match="does not answer") as failure:
                TokenEndpoint(url, "a", "s3cret", "", authorities).token(clock)
            assert "s3cret" not in str(failure.value)
        assert len(issuer.asked) == 1


def test_a_source_shows_no_secret_and_its_copies_ask_again(issuer: Issuer) -> None:
    source = TokenEndpoint(issuer.url, "a", "s3cret")
    issuer.answer = 200, json.dumps({"access_token": "t0ken", "expires_in": 100}).encode()
    source.token(SYSTEM_CLOCK)
    assert "s3cret" not in repr(source)
    assert "t0ken" not in repr(source)
    copy = pickle.loads(pickle.dumps(source))
    assert b"t0ken" not in pickle.dumps(source)
    assert copy == source
    assert copy.token(SYSTEM_CLOCK) == "t0ken"
    assert len(issuer.asked) == 2


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://issuer.example/token", ""),
        ("http://127.0.0.1:8080/token", ""),
        ("http://[::1]/", ""),
        ("http://localhost/token", ""),
        ("http://issuer.example/token", "use https"),
        ("https://user:s3cret@issuer.example/", "it has a user"),
        ("https://issuer.example/a b", "percent-encoded"),
        *((url, "it is no https://") for url in ("", "x", "ftp://x/", "https:///x", "https://a:x")),
    ],
)
def test_a_secret_is_sent_encrypted_or_within_this_host(url: str, why: str) -> None:
    found = why_no_endpoint(url)
    assert why in found
    assert bool(why) == bool(found)
    assert "s3cret" not in found
