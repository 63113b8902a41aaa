"""Uploads to and downloads from the filer of a broker on another host, over HTTP or HTTPS.

With HTTPS the broker's certificate is verified as on its other listeners, and then it is told who
asks, with each request: by the client's name and password, or by a token, which comes from where
those of the other listeners do. Without TLS nothing is told.

Each call opens a connection: calls are few and large. An upload that breaks off leaves nothing
behind. A read that fails is repeated for a while: payloads never change.
"""

import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cached_property, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from urllib.parse import quote

from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.errors import AuthenticationFailed, BrokerUnavailable
from smq.client.kafka.cluster import DEADLINE_SECONDS
from smq.client.kafka.connection import ATTEMPT_SECONDS_MIN
from smq.client.secure.security import Security, TlsFiles
from smq.client.secure.tls_context import context_of
from smq.filer.store import CREATE, OVERWRITE, Data, Mode, Sink
from smq.model.errors import AlreadyExists, Full, NotFound, StoreError, Unavailable

WAIT_S = 30.0  # For one send or receive; a large body takes many.
PATIENCE_S = 10.0  # A front process that died is back by then.
PAUSE_S = 0.1
_ERRORS: dict[int, type[StoreError]] = {
    404: NotFound,
    409: AlreadyExists,
    412: AlreadyExists,  # Or it is gone, and cannot be renewed.
    507: Full,
}


class RemoteFiler:
    """A filer behind `http://host:port/filer/`; with `security` it is https, and who asks is
    known. A token is waited for so many seconds at most, and a read is repeated no longer."""

    def __init__(
        self,
        host: str,
        port: int,
        clock: Clock = SYSTEM_CLOCK,
        security: Security | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._host, self._port = host, port
        self._clock, self._security = clock, security
        self._deadline_seconds = deadline_seconds

    @cached_property
    def _context(self) -> ssl.SSLContext:
        assert self._security is not None
        return context_of(self._security.tls or TlsFiles())

    @contextmanager
    def writing(self, key: str, mode: Mode = CREATE) -> Iterator[Sink]:
        """Store what the block writes when it ends; nothing if it raises.

        OVERWRITE is for a payload that is there: the same bytes get a new time.
        """
        assert mode in {CREATE, OVERWRITE}, "payloads never change"
        condition = "If-None-Match" if mode == CREATE else "If-Match"
        failures = partial(self._failures, key)
        with self._connection() as connection:
            body = _ChunkedBody(key, connection, failures)
            with failures():
                login = self._login(self._deadline_seconds)
                connection.putrequest("PUT", _path(key))
                connection.putheader(condition, "*")
                connection.putheader("Transfer-Encoding", "chunked")
                for name, value in login.items():
                    connection.putheader(name, value)
                connection.endheaders()
            yield body  # Errors of the caller that writes are not the filer's.
            body.finish()

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes [start, start + length) that exist. Retries for PATIENCE_S, or up to the
        deadline.

        Raises NotFound, Unavailable; StoreError: the filer refuses.
        """
        give_up_s = self._clock.monotonic_s() + min(PATIENCE_S, self._deadline_seconds)
        while True:
            left_s = give_up_s - self._clock.monotonic_s()
            try:
                return self._get(key, start, length, left_s)
            except Unavailable:
                if self._clock.monotonic_s() >= give_up_s:
                    raise
            self._clock.sleep(PAUSE_S)

    def local_path(self, key: str) -> Path | None:  # noqa: ARG002  (as a Store)
        """None: the files are on another host."""
        return None

    def _get(self, key: str, start: int, length: int | None, left_s: float) -> bytes:
        method, wanted = "HEAD", dict[str, str]()  # Without bytes: whether the object exists.
        if length != 0:
            last = "" if length is None else start + length - 1
            method, wanted = "GET", {"Range": f"bytes={start}-{last}"}
        with self._failures(key), self._connection() as connection:
            connection.request(method, _path(key), headers={**wanted, **self._login(left_s)})
            response = connection.getresponse()
            if response.status == 416:  # The object ends before the range.
                return b""
            _check(key, response)
            return response.read()

    def _connection(self) -> "closing[HTTPConnection]":
        if self._security is None:
            return closing(HTTPConnection(self._host, self._port, timeout=WAIT_S))
        secured = HTTPSConnection(self._host, self._port, timeout=WAIT_S, context=self._context)
        return closing(secured)

    def _login(self, left_s: float) -> dict[str, str]:
        """The headers by which a user is known; a token is waited for so long. Raises
        AuthenticationFailed, BrokerUnavailable."""
        if self._security is None:
            return {}
        if self._security.tokens is not None:
            token = self._security.tokens.token(self._clock, max(left_s, ATTEMPT_SECONDS_MIN))
            return {"Authorization": f"Bearer {token}"}
        return _password_of(self._security)

    @contextmanager
    def _failures(self, key: str) -> Iterator[None]:
        where = f"{self._host}:{self._port}"
        try:
            yield
        except ssl.SSLCertVerificationError as reason:
            why = f"the certificate of the filer at {where} is not taken: {reason.verify_message}"
            raise StoreError(key, why) from reason
        except ValueError as reason:  # A file that properties name cannot be used.
            raise StoreError(key, str(reason)) from reason
        except AuthenticationFailed as reason:  # There is no token.
            raise StoreError(key, str(reason)) from reason
        except BrokerUnavailable as reason:  # There is none yet.
            raise Unavailable(key, str(reason)) from reason
        except (OSError, HTTPException) as reason:
            raise Unavailable(key, f"the filer at {where} does not answer: {reason}") from reason


class _ChunkedBody:
    """A body sent in chunks. An empty chunk marks it complete."""

    def __init__(
        self,
        key: str,
        connection: HTTPConnection,
        failures: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._key, self._connection, self._failures = key, connection, failures

    def write(self, data: Data, /) -> int:
        """Send all of it."""
        view = memoryview(data).cast("B")
        if view:
            with self._failures():
                self._send(b"%x\r\n" % len(view), view, b"\r\n")
        return len(view)

    def finish(self) -> None:
        """Mark the body complete, and wait for the filer to confirm."""
        with self._failures():
            self._send(b"0\r\n\r\n")
            _check(self._key, self._connection.getresponse())

    def _send(self, *pieces: Data) -> None:
        try:
            for piece in pieces:
                self._connection.send(piece)
        except OSError:
            with suppress(OSError, HTTPException):  # The filer may have answered before it hung up.
                _check(self._key, self._connection.getresponse())
            raise


def _password_of(security: Security) -> dict[str, str]:
    """The headers with a name and a password; HTTP knows no name with a colon."""
    if not security.user or ":" in security.user:
        return {}
    words = b64encode(f"{security.user}:{security.password}".encode()).decode()
    return {"Authorization": f"Basic {words}", "x-smq-token": "client"}


def _path(key: str) -> str:
    return f"/filer/{quote(key)}"


def _check(key: str, response: HTTPResponse) -> None:
    if response.status >= 300:
        said = response.read(1000).decode(errors="replace")
        error = _ERRORS.get(response.status, Unavailable if response.status >= 500 else StoreError)
        raise error(key, f"the filer answers {response.status}: {said}")
