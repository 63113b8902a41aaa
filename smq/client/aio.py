"""The SDK for asyncio: the same clients and producers, which never block the event loop.

    async with smq.connect_async("127.0.0.1:9092") as client:
        async with client.producer() as producer:
            sent = await producer.send("clicks", b"value")      waits only while the buffer is full
            print(await sent)                                   a Delivery

`await` opens one too, and leaves closing it to you: `client = await smq.connect_async(…)`.
Producers send without waiting. Calls that may block run in asyncio's threads.
"""

import asyncio
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np

from smq.client.client import Client, connect
from smq.client.consuming.aio_consumer import AsyncConsumer
from smq.client.kafka.offset_facts import PartitionOffsets
from smq.client.names import OffsetsIn
from smq.client.producing.delivery.futures import BatchFuture, Future
from smq.client.producing.producer import Bytes, Producer
from smq.client.producing.transactions.transaction import Transaction
from smq.client.reference import Source
from smq.model.references import HANDLE_BYTES_MAX, Reference


class AsyncProducer:
    """The methods of Producer, with its arguments and errors."""

    def __init__(self, open_producer: Callable[[], Producer]) -> None:
        self._open_producer = open_producer
        self._producer: Producer

    async def send(self, topic: str, value: Bytes | None, **fields: Any) -> Future:  # noqa: ANN401
        """Send a record. On return it is accepted; await its future for the result."""
        work = partial(self._producer.send, topic, value, **fields)
        must_wait = self._producer.must_wait(topic, value, fields.get("key"))
        return await asyncio.to_thread(work) if must_wait else work()

    async def send_batch(self, topic: str, batch: Any) -> BatchFuture:  # noqa: ANN401
        """Send the rows of a table or of columns."""
        return await asyncio.to_thread(self._producer.send_batch, topic, batch)

    async def send_arrow(self, topic: str, table: Any, **fields: Any) -> Future:  # noqa: ANN401
        """Send a table as one record."""
        return await asyncio.to_thread(partial(self._producer.send_arrow, topic, table, **fields))

    async def send_array(self, topic: str, array: np.ndarray, **fields: Any) -> Future:  # noqa: ANN401
        """Send an array as one record."""
        return await asyncio.to_thread(partial(self._producer.send_array, topic, array, **fields))

    async def send_reference(self, topic: str, source: Source, **fields: Any) -> Future:  # noqa: ANN401
        """Upload a payload, then send a record that refers to it."""
        work = partial(self._producer.send_reference, topic, source, **fields)
        return await asyncio.to_thread(work)

    async def send_handle(self, topic: str, reference: Reference, **fields: Any) -> Future:  # noqa: ANN401
        """Send a record that refers to a payload which was uploaded to the topic."""
        work = partial(self._producer.send_handle, topic, reference, **fields)
        must_wait = self._producer.must_wait(topic, bytes(HANDLE_BYTES_MAX), fields.get("key"))
        return await asyncio.to_thread(work) if must_wait else work()

    def transaction(self) -> "AsyncTransaction":
        """A transaction, for `async with`."""
        return AsyncTransaction(self._producer.transaction())

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all records sent so far are acknowledged or have failed."""
        await asyncio.to_thread(self._producer.flush, timeout_s)

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and close."""
        await asyncio.to_thread(self._producer.close, timeout_s)

    async def _open(self) -> Self:
        self._producer = await asyncio.to_thread(self._open_producer)
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._producer.__exit__, kind, error, tb)


class AsyncTransaction:
    """The methods of Transaction, with its arguments and errors."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def commit_offsets(
        self, group: AsyncConsumer | str, offsets: OffsetsIn | None = None
    ) -> None:
        """Commit offsets of a group if, and when, the transaction is committed."""
        if isinstance(group, AsyncConsumer):
            found = await group.group_offsets(offsets)
            await asyncio.to_thread(self._transaction.commit_group, found)
        else:
            await asyncio.to_thread(self._transaction.commit_offsets, group, offsets)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._transaction.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._transaction.__exit__, kind, error, tb)


class AsyncClient:
    """The methods of Client, with its arguments and errors."""

    def __init__(self, open_client: Callable[[], Client]) -> None:
        self._open_client = open_client
        self._client: Client

    @property
    def transport(self) -> str:
        """'shared memory' or 'kafka'."""
        return self._client.transport

    async def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> int:
        """Create a topic; return the number of its partitions."""
        return await asyncio.to_thread(self._client.create_topic, name, partitions, configs)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        await asyncio.to_thread(self._client.delete_topic, name)

    async def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by name."""
        return await asyncio.to_thread(self._client.topics)

    async def offsets(self, topic: str, **options: Any) -> dict[int, PartitionOffsets]:  # noqa: ANN401
        """As Client.offsets."""
        return await asyncio.to_thread(self._client.offsets, topic, **options)

    async def upload(self, topic: str, source: Source, **options: Any) -> Reference:  # noqa: ANN401
        """Upload a payload that records of a topic may refer to."""
        return await asyncio.to_thread(partial(self._client.upload, topic, source, **options))

    def producer(self, **settings: Any) -> AsyncProducer:  # noqa: ANN401
        """A producer, to be opened by `async with` or `await`; the settings of Client.producer."""
        return AsyncProducer(partial(self._client.producer, **settings))

    def consumer(self, topics: str | Sequence[str] = (), **settings: Any) -> AsyncConsumer:  # noqa: ANN401
        """A consumer, to be opened by `async with` or `await`; the settings of Client.consumer."""
        return AsyncConsumer(partial(self._client.consumer, topics, **settings))

    async def close(self) -> None:
        """Close the client and everything that was opened with it."""
        await asyncio.to_thread(self._client.close)

    async def _open(self) -> Self:
        self._client = await asyncio.to_thread(self._open_client)
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def connect_async(address: str | os.PathLike[str], **settings: Any) -> AsyncClient:  # noqa: ANN401
    """A client, opened by `async with` or `await`; the settings of connect."""
    return AsyncClient(partial(connect, address, **settings))
