"""HTTP to a front, by the standard library: bodies in pieces, answers whole or in pieces."""

import http.client
import json
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
    *,
    context: ssl.SSLContext | None = None,
    **headers: str,
) -> Iterator[http.client.HTTPResponse]:
    """One request, its answer to be read in the block; by HTTPS with a `context`."""
    at = broker.status().http
    connection = http.client.HTTPConnection(at, timeout=TIMEOUT_S)
    if context is not None:
        connection = http.client.HTTPSConnection(at, timeout=TIMEOUT_S, context=context)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        yield connection.getresponse()
    finally:
        connection.close()


def ask(
    broker: SmqBroker,
    method: str,
    path: str,
    body: bytes | Iterable[bytes] | None = None,
    *,
    context: ssl.SSLContext | None = None,
    **headers: str,
) -> Answer:
    """One request and its whole answer."""
    with request(broker, method, path, body, context=context, **headers) as response:
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())


def console_token(broker: SmqBroker) -> str:
    """The token of the console's address, which the broker says after it is ready."""
    begin = "#token="
    eventually(lambda: begin in broker.output.read_text().rpartition("\n")[0], "it says the token")
    return broker.output.read_text().split(begin)[1].split()[0]
