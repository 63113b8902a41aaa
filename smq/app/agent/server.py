"""Runs gRPC's servers on the ports that the supervisor keeps: SeaweedMQ's broker and agent."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from smq.agent.proto import health_pb2, mq_agent_pb2, mq_broker_pb2, reflection_pb2
from smq.app.agent.broker import BrokerSide
from smq.app.agent.commits import GroupCommits
from smq.app.agent.coordinate_calls import CoordinateCalls
from smq.app.agent.feeds import PartitionFeeds
from smq.app.agent.fetch_calls import FetchCalls
from smq.app.agent.gate import OpenGate
from smq.app.agent.health_calls import HealthCalls
from smq.app.agent.large_batches import LargeBatches
from smq.app.agent.live import Live, LivePublisher, LiveSubscriber
from smq.app.agent.members import AskHolder, GroupMembers
from smq.app.agent.methods import Handler, service_of
from smq.app.agent.ports import KEYS_S, PortWatch, ServedPort, ports_of
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
from smq.app.process.asker import Asker
from smq.app.process.audit_teller import TELL_S, AuditTeller, InThread
from smq.app.process.inheritance import COORDINATOR, Inheritance
from smq.model.config import Config, bracketed
from smq.model.printable import say_error
from smq.security.access import AccessView
from smq.security.listeners import grpc_told
from smq.shard.quotas import ClientQuotas
from smq.store.config_changes import open_config_changes
from smq.store.layouts import open_layouts
from smq.store.manifest import open_manifest
from smq.store.store import FILE_NAME as STORE
from smq.wire.internal.groups import GroupHeld, HoldGroups

MiB = 1024 * 1024
RECEIVE_BYTES_MAX = 16 * MiB
SEND_BYTES_MAX = 100 * MiB  # Of a FetchMessage that asks for so much.
PING_EVERY_MS, PING_TIMEOUT_MS = 60_000, 20_000
PINGS_ACCEPTED_MS = 10_000
STREAMS_PER_CONNECTION_MAX = 1000
CONNECTIONS_MAX = 4096  # Of a port: each costs some tens of kilobytes, in TLS more.
IDLE_MS_MAX = 600_000  # Without a call; then a connection is closed, as Kafka's are.
HANDSHAKE_MS_MAX = 10_000
METADATA_BYTES_MAX = 16 * 1024
PENDING_S_MAX = 600  # gRPC cancels a call that waits longer: 30 s are few for a busy machine.
WITH_BYTES = ("PublishMessage", "PublishRecord")  # A record's size is looked at before all else.
REFLECTION = "ServerReflection"
STOP_WAIT_S = 3  # For calls in progress; the supervisor waits a little longer.
CLOSE_WAIT_S = 0.5
STORE_POLL_S = 0.05
HOLD_S_MAX = 5.0  # That an answer about groups takes; then it is asked again.
THREADS_MAX = 64  # Reads over the wire wait in threads: asyncio's few would hold up all calls.

OPTIONS = (
    ("grpc.so_reuseport", 1),  # The supervisor's socket has the port too, and does not listen.
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.max_send_message_length", SEND_BYTES_MAX),
    ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
    ("grpc.server_max_unrequested_time_in_server", PENDING_S_MAX),
    ("grpc.max_connection_idle_ms", IDLE_MS_MAX),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS_MAX),
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
    access, quotas = AccessView(inheritance.access, inheritance.config), ClientQuotas()
    ports = ports_of(inheritance, access, quotas)
    broker = BrokerSide(inheritance.data_dir, inheritance.agent_fds)
    parts = _parts(inheritance, broker, ports)
    watch = PortWatch(ports, quotas, parts.topics.quotas, inheritance.timings.rpcs())
    logins = [each.logins for each in ports.values() if each.logins is not None]
    coordinator = inheritance.socket_path(COORDINATOR)
    teller = AuditTeller(access.audit, coordinator, say_error, _in_one_thread("audit"), logins)
    options = *OPTIONS, ("grpc.max_allowed_incoming_connections", room_of(inheritance.config))
    servers = [
        OpenedPort(ports[name], parts.services[name], address, options)
        for name, address in _addresses(inheritance).items()
    ]
    works = (
        parts.commits.keep_committing(),
        parts.commits.members.keep_telling(),
        watch.keep_judging(),
        watch.keep_reading(),
        _keep_telling(teller),
    )
    tasks = [asyncio.create_task(each) for each in works]
    for each in servers:
        if each.can_open:
            await each.open()
        else:  # The broker has served, and goes on with all else.
            tasks.append(asyncio.create_task(each.open_later()))
    inheritance.report_ready()
    await _until(stop, tasks)
    parts.commits.stop()
    for end in (*parts.endings, *(each.gate.stop for each in ports.values())):
        end()
    await asyncio.gather(*(each.close() for each in servers))
    for task in tasks:
        task.cancel()
    await teller.tell()
    with suppress(TimeoutError):  # What publishers were not told of may be lost.
        async with asyncio.timeout(CLOSE_WAIT_S):
            await asyncio.to_thread(broker.close)


def _in_one_thread(name: str) -> InThread:
    """Runs functions one after the other."""
    loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, name)
    return partial(loop.run_in_executor, thread)


def _holder(inheritance: Inheritance) -> AskHolder:
    """Asks the coordinator to take members of groups: one question after the other."""
    asker = Asker(inheritance.socket_path(COORDINATOR), HOLD_S_MAX)
    in_thread = _in_one_thread("members")

    async def ask(question: HoldGroups) -> Sequence[GroupHeld]:
        held: Sequence[GroupHeld] = (await in_thread(asker.ask, question))[0]
        return held

    return ask


async def _keep_telling(teller: AuditTeller) -> None:
    while True:
        await asyncio.sleep(TELL_S)
        await teller.tell()


async def _until(stop: asyncio.Event, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for the stop. None of the tasks ends before, unless it fails: then so do we."""
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for each in done:
        each.result()


def _addresses(inheritance: Inheritance) -> dict[str, str]:
    """Where each port is, by its setting."""
    host = bracketed(inheritance.config.grpc_host)
    sockets = inheritance.grpc_sockets.items()
    return {name: f"{host}:{reserved.getsockname()[1]}" for name, reserved in sockets}


class OpenedPort:
    """A server of gRPC at one port."""

    def __init__(
        self,
        port: ServedPort,
        services: Sequence[grpc.GenericRpcHandler],
        address: str,
        options: Sequence[tuple[str, int]],
    ) -> None:
        self._port, self._services = port, services
        self._address, self._options = address, options
        self._server: grpc.aio.Server | None = None

    @property
    def can_open(self) -> bool:
        """Whether its keys, if it needs some, can be used."""
        return self._port.keys is None or self._port.keys.are_usable

    async def open(self) -> None:
        """Serve from now on."""
        self._server = server = grpc.aio.server(options=self._options)
        server.add_generic_rpc_handlers(self._services)
        if self._port.keys is None:
            server.add_insecure_port(self._address)
        else:
            server.add_secure_port(self._address, self._port.keys.credentials())
        await server.start()

    async def open_later(self) -> None:
        """Serve once the keys can be used; does not return."""
        while not self.can_open:  # noqa: ASYNC110  (files are looked at from time to time)
            await asyncio.sleep(KEYS_S)
        await self.open()
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Serve no more, once the calls in progress have ended or had their time for that."""
        if self._server is not None:
            await self._server.stop(STOP_WAIT_S)


def room_of(config: Config) -> int:
    """How many connections a port takes: both together leave descriptors for the agent's own."""
    return min(CONNECTIONS_MAX, max(1, config.max_connections // 2))


def _request_stop(fd: int, stop: asyncio.Event) -> None:
    asyncio.get_running_loop().remove_reader(fd)
    stop.set()


class ServedParts(NamedTuple):
    """What is served on each port, by its setting; what keeps running; and what ends streams."""

    services: Mapping[str, Sequence[grpc.GenericRpcHandler]]
    topics: KnownTopics
    commits: GroupCommits
    endings: Sequence[Callable[[], None]]


def _parts(
    inheritance: Inheritance, broker: BrokerSide, ports: Mapping[str, ServedPort]
) -> ServedParts:
    store, members = inheritance.data_dir / STORE, GroupMembers(_holder(inheritance))
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
    timings = inheritance.timings.rpcs()
    large = LargeBatches(
        broker,
        lambda topic: int(topics.setting_now(topic, "max.message.bytes")),
        say_error,
        timings.count_passed_batch,
    )
    readers = PartitionReaders(broker, large)
    commits = GroupCommits(broker, members, topics.is_there)
    fetching = FetchCalls(topics, broker, readers, subscribers, store)
    feeds = PartitionFeeds(readers)
    around = SubscriberSurroundings(topics, broker, feeds, commits, subscribers)
    subscriptions = Subscriptions(around, timings.count_unknown_ack)
    messages, sharings = SubscribeCalls(subscriptions), Sharings(members.take_past)
    records = RecordCalls(subscriptions, sharings)
    told = grpc_told(inheritance.config)
    coordinating = CoordinateCalls(topics, sharings, members, told)
    of_broker: dict[str, Handler] = {
        **calls.handlers(),
        **publishing.broker_handlers(),
        **fetching.handlers(),
        **UnflushedCalls(topics, broker, readers, open_manifest(store)).handlers(),
        **messages.handlers(),
        **coordinating.handlers(),
    }
    of_agent: dict[str, Handler] = {**publishing.agent_handlers(), **records.handlers()}
    services = _services({"grpc.port": of_broker, "agent.port": of_agent}, ports, inheritance)
    health = (each.stop for _, each in services.values())
    return ServedParts(
        {name: handlers for name, (handlers, _) in services.items()},
        topics,
        commits,
        (members.stop, *health, subscriptions.end_all, records.end_all),
    )


def _services(
    handlers: Mapping[str, Mapping[str, Handler]],
    ports: Mapping[str, ServedPort],
    inheritance: Inheritance,
) -> dict[str, tuple[Sequence[grpc.GenericRpcHandler], HealthCalls]]:
    """What is served at each port: its service, what reflects it, and its health, which is for
    everybody."""
    timings = inheritance.timings.rpcs()
    found: dict[str, tuple[Sequence[grpc.GenericRpcHandler], HealthCalls]] = {}
    timings.restart()
    services = {
        "grpc.port": _service(mq_broker_pb2, "SeaweedMessaging"),
        "agent.port": _service(mq_agent_pb2, "SeaweedMessagingAgent"),
    }
    about_health, about = _service(health_pb2, "Health"), _service(reflection_pb2, REFLECTION)
    for name, port in ports.items():
        service = services[name]
        health, told = HealthCalls(service.full_name), (service, about_health, about)
        reflection = ReflectionCalls(told).handlers()
        served = (
            service_of(service, handlers[name], timings, port.gate, WITH_BYTES),
            service_of(about, reflection, timings, port.gate),
            service_of(about_health, health.handlers(), timings, OpenGate()),
        )
        found[name] = served, health
    return found


def _service(module: object, name: str) -> ServiceDescriptor:
    return module.DESCRIPTOR.services_by_name[name]  # type: ignore[attr-defined]
