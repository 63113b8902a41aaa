"""Runs gRPC's servers on the ports that the supervisor keeps: SeaweedMQ's broker and agent."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from shm.timings import RpcTimings
from smq.agent.proto import health_pb2, mq_agent_pb2, mq_broker_pb2, reflection_pb2
from smq.app.agent.broker import BrokerSide
from smq.app.agent.commits import GroupCommits
from smq.app.agent.coordinate_calls import CoordinateCalls
from smq.app.agent.feeds import PartitionFeeds
from smq.app.agent.fetch_calls import FetchCalls
from smq.app.agent.health_calls import HealthCalls
from smq.app.agent.live import Live, LivePublisher, LiveSubscriber
from smq.app.agent.methods import Handler, service_of
from smq.app.agent.publish_calls import PublishCalls
from smq.app.agent.readers import PartitionReaders
from smq.app.agent.record_calls import RecordCalls
from smq.app.agent.reflection_calls import ReflectionCalls
from smq.app.agent.shares import Sharings
from smq.app.agent.subscribe_calls import SubscribeCalls
from smq.app.agent.subscribing import SubscriberSurroundings, Subscriptions
from smq.app.agent.topic_calls import TopicCalls
from smq.app.agent.topics import KnownTopics
from smq.app.agent.unflushed_calls import UnflushedCalls
from smq.app.process.inheritance import Inheritance
from smq.model.config import bracketed
from smq.security.listeners import grpc_told
from smq.store.config_changes import open_config_changes
from smq.store.layouts import open_layouts
from smq.store.manifest import open_manifest
from smq.store.store import FILE_NAME as STORE

MiB = 1024 * 1024
RECEIVE_BYTES_MAX = 16 * MiB
SEND_BYTES_MAX = 100 * MiB  # Of a FetchMessage that asks for so much.
PING_EVERY_MS, PING_TIMEOUT_MS = 60_000, 20_000
PINGS_ACCEPTED_MS = 10_000
STREAMS_PER_CONNECTION_MAX = 1000
METADATA_BYTES_MAX = 16 * 1024
PENDING_S_MAX = (
    600  # gRPC cancels a call that waits longer for us: 30 s are few for a busy machine.
)
WITH_BYTES = ("PublishRecord",)  # Values are appended as publishers have marshalled them.
REFLECTION = "ServerReflection"
STOP_WAIT_S = 3  # For calls in progress; the supervisor waits a little longer.
CLOSE_WAIT_S = 0.5
STORE_POLL_S = 0.05
THREADS_MAX = 64  # Reads over the wire wait in threads: asyncio's few would hold up all calls.

OPTIONS = (
    ("grpc.so_reuseport", 1),  # The supervisor's socket has the port too, and does not listen.
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.max_send_message_length", SEND_BYTES_MAX),
    ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
    ("grpc.server_max_unrequested_time_in_server", PENDING_S_MAX),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.keepalive_time_ms", PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", PINGS_ACCEPTED_MS),
)


def serve_grpc(inheritance: Inheritance) -> None:
    """Serve until asked to stop."""
    # asyncio.run would wait for threads, which may wait for shards that stop too.
    asyncio.new_event_loop().run_until_complete(_serve(inheritance))


async def _serve(inheritance: Inheritance) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS_MAX, "agent"))
    loop.add_reader(inheritance.stop.fd, _request_stop, inheritance.stop.fd, stop)
    while inheritance.catalog.version() == 0:  # The coordinator has its store, and its topics.
        if stop.is_set():
            return
        await asyncio.sleep(STORE_POLL_S)
    broker = BrokerSide(inheritance.data_dir)
    parts = _parts(inheritance, broker)
    committing = asyncio.create_task(parts.commits.keep_committing())
    host = bracketed(inheritance.config.grpc_host)
    servers = []
    for name, reserved in inheritance.grpc_sockets.items():
        server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers(parts.services[name])
        server.add_insecure_port(f"{host}:{reserved.getsockname()[1]}")
        await server.start()
        servers.append(server)
    inheritance.report_ready()
    await stop.wait()
    parts.commits.stop()
    for end in parts.endings:
        end()
    await asyncio.gather(*(each.stop(STOP_WAIT_S) for each in servers))
    committing.cancel()
    with suppress(TimeoutError):  # What publishers were not told of may be lost.
        async with asyncio.timeout(CLOSE_WAIT_S):
            await asyncio.to_thread(broker.close)


def _request_stop(fd: int, stop: asyncio.Event) -> None:
    asyncio.get_running_loop().remove_reader(fd)
    stop.set()


class ServedParts(NamedTuple):
    """What is served on each port, by its setting; what keeps running; and what ends streams."""

    services: Mapping[str, Sequence[grpc.GenericRpcHandler]]
    commits: GroupCommits
    endings: Sequence[Callable[[], None]]


def _parts(inheritance: Inheritance, broker: BrokerSide) -> ServedParts:
    store = inheritance.data_dir / STORE
    topics = KnownTopics(inheritance.catalog, open_layouts(store), inheritance.config)
    publishers, subscribers = Live[LivePublisher](), Live[LiveSubscriber]()
    calls = TopicCalls(
        topics,
        broker,
        open_config_changes(store),
        grpc_told(inheritance.config),
        (publishers, subscribers),
    )
    publishing = PublishCalls(topics, broker, calls, publishers)
    readers, commits = PartitionReaders(broker), GroupCommits(broker)
    fetching = FetchCalls(topics, broker, readers, subscribers)
    feeds = PartitionFeeds(readers)
    around = SubscriberSurroundings(topics, broker, feeds, commits, subscribers)
    subscriptions = Subscriptions(around)
    messages, sharings = SubscribeCalls(subscriptions), Sharings()
    records = RecordCalls(subscriptions, sharings)
    coordinating = CoordinateCalls(topics, sharings, grpc_told(inheritance.config))
    of_broker: dict[str, Handler] = {
        **calls.handlers(),
        **publishing.broker_handlers(),
        **fetching.handlers(),
        **UnflushedCalls(topics, broker, readers, open_manifest(store)).handlers(),
        **messages.handlers(),
        **coordinating.handlers(),
    }
    of_agent: dict[str, Handler] = {**publishing.agent_handlers(), **records.handlers()}
    endings = subscriptions.end_all, records.end_all
    return _served(of_broker, of_agent, inheritance.timings.rpcs(), commits, endings)


def _served(
    of_broker: Mapping[str, Handler],
    of_agent: Mapping[str, Handler],
    timings: RpcTimings,
    commits: GroupCommits,
    endings: Sequence[Callable[[], None]],
) -> ServedParts:
    broker = _service(mq_broker_pb2, "SeaweedMessaging")
    agent = _service(mq_agent_pb2, "SeaweedMessagingAgent")
    health = HealthCalls(broker.full_name), HealthCalls(agent.full_name)
    timings.restart()
    about_health, about = _service(health_pb2, "Health"), _service(reflection_pb2, REFLECTION)

    def beside(own: ServiceDescriptor, calls: HealthCalls) -> list[grpc.GenericRpcHandler]:
        reflection = ReflectionCalls((own, about_health, about))
        return [
            service_of(about_health, calls.handlers(), timings),
            service_of(about, reflection.handlers(), timings),
        ]

    services = {
        "grpc.port": (service_of(broker, of_broker, timings), *beside(broker, health[0])),
        "agent.port": (
            service_of(agent, of_agent, timings, WITH_BYTES),
            *beside(agent, health[1]),
        ),
    }
    return ServedParts(services, commits, (*(each.stop for each in health), *endings))


def _service(module: object, name: str) -> ServiceDescriptor:
    return module.DESCRIPTOR.services_by_name[name]  # type: ignore[attr-defined]
