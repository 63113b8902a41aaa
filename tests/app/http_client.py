"""HTTP to a front, by the standard library: bodies in pieces, answers whole or in pieces."""

import http.client
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any, NamedTuple

from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually

TIMEOUT_S = 30


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@contextmanager
def request(
    broker: SmqBroker,
    method: str,
    path: str,
    body: bytes | Iterable[bytes] | None = None,
    **headers: str,
) -> Iterator[http.client.HTTPResponse]:
    """One request, its answer to be read in the block."""
    with _asked(HTTPConnection(broker.status().http), method, path, body, headers) as response:
        yield response


def ask(
    broker: SmqBroker,
    method: str,
    path: str,
    body: bytes | Iterable[bytes] | None = None,
    **headers: str,
) -> Answer:
    """One request and its whole answer."""
    return exchanged(HTTPConnection(broker.status().http), method, path, body, headers)


def exchanged(
    connection: HTTPConnection,
    method: str,
    path: str,
    body: bytes | Iterable[bytes] | None,
    headers: Mapping[str, str],
) -> Answer:
    """One request on a connection of its own, which may be one of HTTPS, and its whole answer."""
    with _asked(connection, method, path, body, headers) as response:
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())


@contextmanager
def _asked(
    connection: HTTPConnection,
    method: str,
    path: str,
    body: bytes | Iterable[bytes] | None,
    headers: Mapping[str, str],
) -> Iterator[http.client.HTTPResponse]:
    connection.timeout = TIMEOUT_S
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        yield connection.getresponse()
    finally:
        connection.close()


def console_token(broker: SmqBroker) -> str:
    """The token of the console's address, which the broker says after it is ready."""
    begin = "#token="
    eventually(lambda: begin in broker.output.read_text().rpartition("\n")[0], "it says the token")
    return broker.output.read_text().split(begin)[1].split()[0]
