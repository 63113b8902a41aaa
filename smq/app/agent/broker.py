"""The broker as the agent uses it: the SDK's client, and questions by Kafka's protocol.

Questions run in threads, each with a connection of its own: one that waits holds up the others only
when QUESTIONS_MAX do.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from smq.client.client import Client, connect
from smq.client.kafka.cluster import Cluster
from smq.client.locate import cluster_at
from smq.client.producing.producer import Producer
from smq.client.secure.security import Security
from smq.security.external import NAME as EXTERNAL, Named
from smq.security.principals import Peer

NO_WAYS: Mapping[int, int] = MappingProxyType({})
PATIENCE_S = 10.0  # For a broker that is starting again.
LINGER_MS = 2  # Records that come alone cost three times as much as those that share a batch.
QUESTIONS_MAX = 16  # At a time, each on a connection that the next ones use again.

Result = TypeVar("Result")


class BrokerSide:
    """Connects at the first use: the shards start beside this process.

    Where rules decide, questions in a user's name go through listeners to which `ways` alone lead,
    by node: there we say for whom we ask, and from where he does.
    """

    def __init__(self, data_dir: Path, ways: Mapping[int, int] = NO_WAYS) -> None:
        self._data_dir, self._ways = data_dir, ways
        self._idle: deque[tuple[Peer | None, Cluster]] = deque()
        self._idle_lock = threading.Lock()
        self._connecting = asyncio.Lock()
        self._questions = asyncio.Semaphore(QUESTIONS_MAX)
        self._client: Client | None = None
        self._producers: dict[int, Producer] = {}

    async def ask(self, work: Callable[[Cluster], Result], asker: Peer | None = None) -> Result:
        """The result of some work with a connection, in a user's name; None: in the broker's own.

        Raises BrokerError.
        """
        async with self._questions:
            return await asyncio.to_thread(self._run, work, asker)

    def _run(self, work: Callable[[Cluster], Result], asker: Peer | None) -> Result:
        """In a thread, which ends the work even if nobody waits for it any more."""
        cluster = self._kept(asker) or self._cluster(asker)
        try:
            result = work(cluster)
        except BaseException:
            cluster.close()
            raise
        with self._idle_lock:
            self._idle.append((asker, cluster))
            oldest = self._idle.popleft()[1] if len(self._idle) > QUESTIONS_MAX else None
        if oldest is not None:
            oldest.close()
        return result

    def _kept(self, asker: Peer | None) -> Cluster | None:
        with self._idle_lock:
            found = next((each for each in reversed(self._idle) if each[0] == asker), None)
            if found is None:
                return None
            self._idle.remove(found)
            return found[1]

    def _cluster(self, asker: Peer | None) -> Cluster:
        if asker is None:
            return cluster_at(self._data_dir, timeout_s=PATIENCE_S)
        assert self._ways, "where rules decide there is a way to each shard"
        named = Named(asker.principal.name, asker.host)
        security = Security(mechanism=EXTERNAL, user=named.token, socket_owner=os.getuid())
        bootstrap = ",".join(map("/proc/self/fd/{}".format, self._ways.values()))
        return Cluster(bootstrap, PATIENCE_S, security=security)

    async def client(self) -> Client:
        """The SDK's client. Raises BrokerError."""
        if self._client is None:
            async with self._connecting:
                if self._client is None:
                    self._client = await asyncio.to_thread(connect, self._data_dir)
        return self._client

    async def producer(self, *, lingers: bool = True) -> Producer:
        """The producer of all publishers that may wait LINGER_MS for an answer, or of all others.

        Raises BrokerError.
        """
        linger_ms = LINGER_MS if lingers else 0
        if linger_ms not in self._producers:
            client = await self.client()
            async with self._connecting:
                if linger_ms not in self._producers:
                    opened = partial(client.producer, linger_ms=linger_ms)
                    self._producers[linger_ms] = await asyncio.to_thread(opened)
        return self._producers[linger_ms]

    def close(self) -> None:
        """Close all, once what was sent is delivered."""
        with self._idle_lock:
            idle, self._idle = self._idle, deque()
        for _, cluster in idle:
            cluster.close()
        if self._client is not None:
            self._client.close()
