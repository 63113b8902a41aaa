"""Confluent's frame, and schemas by id."""

import json
from collections.abc import Iterator
from contextlib import suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request

import pytest
from hypothesis import given, strategies as st

from spark_jobs.formats.framing import Misfit, SameServer, after_indexes, schema_of, unframed


class Registry(BaseHTTPRequestHandler):
    """Has schema 7; 8 is no schema, and 9 ends in an error. 10 leads to 7, 11 to another host."""

    def do_GET(self) -> None:
        leads = {"/schemas/ids/10": "/schemas/ids/7", "/schemas/ids/11": self._elsewhere()}
        if self.path in leads:
            self.send_response(302)
            self.send_header("location", leads[self.path])
            self.end_headers()
            return
        answers = {7: (200, {"schema": '"int"'}), 8: (200, {}), 9: (500, {})}
        code, body = answers.get(int(self.path.removeprefix("/schemas/ids/")), (404, {}))
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def _elsewhere(self) -> str:
        """The same server by another name."""
        return f"http://localhost:{self.connection.getsockname()[1]}/schemas/ids/7"

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_redirect_is_followed_on_the_registrys_host_alone(registry: str) -> None:
    assert schema_of(registry, 10) == '"int"'
    with pytest.raises(OSError, match="which is not asked"):
        schema_of(registry, 11)


@pytest.mark.parametrize(
    ("asked", "named", "is_followed"),
    [
        ("https://r.example/a", "https://r.example/b", True),
        ("https://r.example/a", "https://r.example:8443/b", True),
        ("http://r.example/a", "https://r.example/b", True),
        ("https://r.example/a", "http://r.example/b", False),
        ("https://r.example/a", "https://other.example/b", False),
        ("http://r.example/a", "http://169.254.169.254/b", False),
    ],
)
def test_a_redirect_leaves_neither_the_host_nor_https(
    asked: str, named: str, *, is_followed: bool
) -> None:
    given = Request(asked), BytesIO(), 302, "Found", Message(), named
    if is_followed:
        followed = SameServer().redirect_request(*given)
        assert followed is not None
        assert followed.full_url == named
    else:
        with pytest.raises(HTTPError, match="which is not asked"):
            SameServer().redirect_request(*given)


def test_a_frame_has_an_id() -> None:
    assert unframed(b"\0\0\0\1\2abc") == (258, b"abc")
    for wrong in (b"", b"\0\0\0\1", b"\1\0\0\1\2abc"):
        with pytest.raises(Misfit, match="no schema id"):
            unframed(wrong)


def test_message_indexes_are_skipped() -> None:
    assert after_indexes(b"\0abc") == b"abc"
    assert after_indexes(b"\x04\x02\x80\x01abc") == b"abc"


@given(st.binary(max_size=30))
def test_garbage_is_a_misfit(value: bytes) -> None:
    with suppress(Misfit):
        assert value.endswith(after_indexes(value))


def test_a_registry_has_schemas(registry: str, tmp_path: Path) -> None:
    assert schema_of(registry, 7) == '"int"'
    with pytest.raises(Misfit, match="has no schema 1"):
        schema_of(registry, 1)
    for broken in (8, 9):  # The registry's fault: no record is a dead letter for it.
        with pytest.raises(OSError, match=r"gave no schema|500"):
            schema_of(registry, broken)
    (tmp_path / "3.avsc").write_text('"long"')
    assert schema_of(str(tmp_path), 3) == '"long"'
    with pytest.raises(Misfit, match="has no schema 4"):
        schema_of(str(tmp_path), 4)
