"""The broker as the agent uses it: the SDK's client, and questions by Kafka's protocol.

Questions run in threads, each with a connection of its own: one that waits holds up the others only
when QUESTIONS_MAX do.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from smq.client.client import Client, connect
from smq.client.kafka.cluster import Cluster
from smq.client.locate import cluster_at
from smq.client.producing.producer import Producer

PATIENCE_S = 10.0  # For a broker that is starting again.
LINGER_MS = 2  # Records that come alone cost three times as much as those that share a batch.
QUESTIONS_MAX = 16  # At a time, each on a connection that the next ones use again.

Result = TypeVar("Result")


class BrokerSide:
    """Connects at the first use: the shards start beside this process."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._idle: list[Cluster] = []
        self._connecting = asyncio.Lock()
        self._questions = asyncio.Semaphore(QUESTIONS_MAX)
        self._client: Client | None = None
        self._producers: dict[int, Producer] = {}

    async def ask(self, work: Callable[[Cluster], Result]) -> Result:
        """The result of some work with a connection. Raises BrokerError."""
        async with self._questions:
            return await asyncio.to_thread(self._run, work)

    def _run(self, work: Callable[[Cluster], Result]) -> Result:
        """In a thread, which ends the work even if nobody waits for it any more."""
        cluster = self._kept() or self._cluster()
        try:
            result = work(cluster)
        except BaseException:
            cluster.close()
            raise
        if len(self._idle) < QUESTIONS_MAX:
            self._idle.append(cluster)
        else:
            cluster.close()
        return result

    def _kept(self) -> Cluster | None:
        with suppress(IndexError):  # Another thread may take the last one.
            return self._idle.pop()
        return None

    def _cluster(self) -> Cluster:
        return cluster_at(self._data_dir, timeout_s=PATIENCE_S)

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
        for cluster in self._idle:
            cluster.close()
        self._idle.clear()
        if self._client is not None:
            self._client.close()
