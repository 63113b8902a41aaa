"""A client that goes away as its stream begins, and subscriptions that know which are open."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc

from smq.app.agent.refusals import CallRefused
from smq.app.agent.starts import PlacesKnown
from smq.app.agent.subscribing import Instances
from smq.model.offset_types import Start
from smq.security.rights import EVERYTHING


class OneSubscription:
    """Subscriptions that begin elsewhere than was asked for, and know which are open."""

    def __init__(self) -> None:
        self.open: list[object] = []
        self.instances = Instances()
        topic = SimpleNamespace(fields=None, partition_of=lambda _: 0)
        self.around = SimpleNamespace(topics=SimpleNamespace(asked=lambda *_: topic))

    @asynccontextmanager
    async def present(self, *_: object) -> AsyncIterator[None]:
        yield

    async def places(self, *_: object) -> PlacesKnown:
        return PlacesKnown({}, {})

    async def begin(self, *_: object) -> tuple[object, Start]:
        self.open.append(object())
        return self.open[-1], Start(0, note="it begins elsewhere")

    async def end(self, subscription: object) -> None:
        self.open.remove(subscription)


class GoneClient:
    """A client that has sent its first message, and reads nothing any more."""

    asker, owner, rights = None, "", EVERYTHING

    def __init__(self, first: object) -> None:
        self._first = first

    async def read(self) -> object:
        return self._first

    async def write(self, _: object) -> None:
        raise CallRefused(grpc.StatusCode.CANCELLED, "the client has gone")

    def peer(self) -> str:
        return ""

    def invocation_metadata(self) -> None:
        return None

    def name_client(self, client_id: str) -> None:
        pass
