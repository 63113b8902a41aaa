"""gRPC's health service: open to everybody, and what load balancers and `grpc_health_probe` ask.

A service is SERVING until the process has been asked to stop: who watches it learns that before its
streams end.
"""

import asyncio

import grpc

from smq.agent.proto import health_pb2 as pb
from smq.app.agent.methods import Context, Handler
from smq.app.agent.refusals import CallRefused

WATCHERS_MAX = 1000  # Of a port: they need no login.
_Answer = pb.HealthCheckResponse


class HealthCalls:
    """Answers for the services of one port; "" is all of them."""

    def __init__(self, *services: str) -> None:
        self._services = frozenset({"", *services})
        self._has_stopped = asyncio.Event()
        self._watchers = 0

    def handlers(self) -> dict[str, Handler]:
        """The calls, by name."""
        return {"Check": self._check, "Watch": self._watch}

    def stop(self) -> None:
        """The process ends."""
        self._has_stopped.set()

    async def _check(self, request: pb.HealthCheckRequest, _: Context) -> _Answer:
        if request.service not in self._services:
            sentence = f"this port has no service {request.service}"
            raise CallRefused(grpc.StatusCode.NOT_FOUND, sentence)
        return self._status()

    async def _watch(self, request: pb.HealthCheckRequest, context: Context) -> None:
        if self._watchers >= WATCHERS_MAX:
            sentence = f"{WATCHERS_MAX} others watch; ask with Check"
            raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence)
        self._watchers += 1
        try:
            await self._tell(request, context)
        finally:
            self._watchers -= 1

    async def _tell(self, request: pb.HealthCheckRequest, context: Context) -> None:
        if request.service not in self._services:
            await context.write(_Answer(status=_Answer.SERVICE_UNKNOWN))
        else:
            await context.write(self._status())
        if not self._has_stopped.is_set():
            await self._has_stopped.wait()  # Its caller's end cancels this.
            if request.service in self._services:
                await context.write(self._status())

    def _status(self) -> _Answer:
        is_serving = not self._has_stopped.is_set()
        return _Answer(status=_Answer.SERVING if is_serving else _Answer.NOT_SERVING)
