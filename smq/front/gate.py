"""Checks before any route: the path, the Host header, the number of requests."""

import asyncio
import ipaddress
import sys
from collections.abc import Mapping
from contextlib import suppress

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

HEALTH_PATH, LIVE_PATH, READY_PATH = "/health", "/health/live", "/health/ready"
HEALTH_PATHS = frozenset({HEALTH_PATH, LIVE_PATH, READY_PATH})
REQUESTS_MAX = 512  # At a time; each holds pieces of an object, and perhaps an open file.
SAY_S = 60.0  # Minimum time between two reports of too many requests.
RETRY_AFTER_S = 1


class Gate:
    """Refuses requests

    - for a path with a line feed, which routes ignore at its end,
    - with a Host that is no address, not localhost and none of `hosts` (DNS rebinding),
    - above REQUESTS_MAX at a time, except for /health.
    """

    def __init__(self, inner: ASGIApp, hosts: frozenset[str]) -> None:
        self._inner, self._hosts = inner, hosts | {"localhost", ""}
        self._answering = 0
        self._said_s: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        self._answering += 1
        try:
            # A request that outlasts a stop is cancelled: its connection just ends.
            with suppress(asyncio.CancelledError):
                await (refusal or self._inner)(scope, receive, send)
        finally:
            self._answering -= 1

    def _refusal(self, scope: Scope) -> Response | None:
        if "\n" in scope["path"]:
            return error(400, "the path has a line feed")
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if not self._is_ours(host):
            return error(421, f"{host!r} is not a name of this host; use its address")
        if self._answering >= REQUESTS_MAX and scope["path"] not in HEALTH_PATHS:
            return self._too_many()
        return None

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        name = name.strip("[]")
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower() in self._hosts
        return True

    def _too_many(self) -> Response:
        now_s = asyncio.get_running_loop().time()
        if self._said_s is None or now_s - self._said_s >= SAY_S:
            self._said_s = now_s
            sys.stderr.write(f"front: {REQUESTS_MAX} requests at once; more are refused\n")
        headers = {"retry-after": str(RETRY_AFTER_S)}
        return error(503, f"{REQUESTS_MAX} requests are being answered already", headers)


def error(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to a failed request."""
    return JSONResponse({"error": sentence}, status, headers)
