"""A stream of records whose partitions, share and client are a test's own."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc

from smq.agent.in_flight import InstanceWindows
from smq.agent.places import SessionStarts
from smq.agent.proto.mq_schema_pb2 import OffsetType
from smq.app.agent.members import InstanceName
from smq.app.agent.record_calls import RecordStream
from smq.app.agent.refusals import CallRefused
from smq.app.agent.starts import PlacesKnown
from smq.app.agent.subscribing import GroupInstance
from smq.model.offset_types import Start, WantedPlace


class Part:
    """A partition that delivers nothing until it ends."""

    def __init__(self) -> None:
        self._over = asyncio.Event()

    async def run(self, *_: object) -> None:
        await self._over.wait()

    def end(self) -> None:
        self._over.set()


class Places:
    """Subscriptions, which know what was asked of them, and those of them that are open."""

    def __init__(self, note: str = "") -> None:
        self.asked: list[list[int]] = []
        self.open: set[Part] = set()
        self._note = note
        self.around = SimpleNamespace(topics=SimpleNamespace(find_or_none=lambda _: None))

    async def places(self, group: object, topic: object, partitions: list[int]) -> PlacesKnown:
        self.asked.append(partitions)
        return PlacesKnown({}, {})

    async def begin(self, *_: object) -> tuple[Part, Start]:
        part = Part()
        self.open.add(part)
        return part, Start(0, note=self._note)

    async def end(self, part: Part) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        self.open.remove(part)


class OurShare:
    """A share that has all its partitions from the first."""

    def __init__(self, partition_count: int) -> None:
        self._to_take = [(each, False) for each in range(partition_count)]
        self.news = asyncio.Event()

    def to_release(self) -> list[int]:
        return []

    def take(self) -> list[tuple[int, bool]]:
        taken, self._to_take = self._to_take, []
        return taken


class TheirEnd:
    """The other end of a stream: it sends nothing until it goes away, and reads nothing."""

    def __init__(self) -> None:
        self.is_gone = asyncio.Event()

    async def read(self) -> Any:
        await self.is_gone.wait()
        return grpc.aio.EOF

    async def write(self, _: object) -> None:
        await self.is_gone.wait()
        raise CallRefused(grpc.StatusCode.CANCELLED, "the client has gone")


def stream_of(places: Places, share: OurShare, context: TheirEnd) -> RecordStream:
    instance = GroupInstance(InstanceName("g", "i"), InstanceWindows(), "", 1, lambda _: False)
    anything: Any = instance
    return RecordStream(places, instance, anything, share, context)  # type: ignore[arg-type]


def starts() -> SessionStarts:
    return SessionStarts({}, WantedPlace(int(OffsetType.RESUME_OR_EARLIEST)))


async def until(is_so: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""
    for _ in range(10_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("what the test waits for did not come")
