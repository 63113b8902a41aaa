"""The main of a shard: opens its logs, serves, and stops in good order."""

import gc
import os
import select
import sys
from collections.abc import Callable, Sequence
from functools import partial

from shm.peer import is_ours
from shm.segment import LogMemory
from smq.app.process.asker import Asker
from smq.app.process.clock import monotonic_ms, sleep
from smq.app.process.inheritance import (
    COORDINATOR,
    SEALER,
    Inheritance,
    agent_name,
    attach_name,
    door_name,
    front_name,
    kafka_name,
    shard_name,
)
from smq.app.process.loop import Loop
from smq.app.process.machine import boot_id
from smq.app.process.notices import Notices
from smq.app.process.peers import Peers
from smq.app.shard.audit_sender import AuditSender
from smq.app.shard.catalogs import Catalogs
from smq.app.shard.commands import ShardCommands
from smq.app.shard.connections.entrance import Entrance
from smq.app.shard.door.sessions import Sessions
from smq.app.shard.entrances import AGENT_ENTRANCE, FRONT_ENTRANCE, Entrances
from smq.app.shard.server import ShardServer
from smq.app.shard.settled import SettledNodes
from smq.log.files.background import BackgroundThread
from smq.log.files.disk import OsDisk
from smq.log.files.segment_files import WalLimits
from smq.log.log import Log
from smq.log.recovery import open_log
from smq.log.sync import SyncThread
from smq.model.catalog import Catalog
from smq.model.errors import StoreError
from smq.model.printable import say_error
from smq.model.segments import KnownEnds
from smq.security.access import AccessView
from smq.security.listeners import UNIX
from smq.shard.shard import Shard
from smq.store.known_ends import known_ends
from smq.store.store import FILE_NAME as STORE
from smq.wire.attach import Hello
from smq.wire.internal.manifest import SyncManifest

HOUSEKEEPING_MS = 1000
DRAIN_MS = 3000
CATALOG_WAIT_MS = 5
PAUSE_S = 0.5
PAST_CACHE_BLOCKS = 32  # Of 2 MiB, all logs of a shard together.
_UNKNOWN_ENDS = "where sealed segments end is not known"
SWITCH_S = 0.0005  # The GIL's switch interval, for which the loop waits for an indexing thread.


def shard_main(inheritance: Inheritance, node_id: int) -> None:
    """Serve node `node_id` until asked to stop."""
    loop = Loop()
    wake_fd, syncs_fd = _wake_up(loop), _wake_up(loop)
    logs = {
        number: _open_log(inheritance, number, memory, wake_fd, syncs_fd)
        for number, memory in inheritance.logs.items()
    }
    access = AccessView(inheritance.access, inheritance.config)
    secret, has_moved = os.urandom(16), inheritance.catalog.has_moved
    nodes = SettledNodes(inheritance.known_nodes, lambda: not has_moved(shard.catalog_version))
    shard = Shard(node_id, inheritance.config, logs, nodes, secret, access)
    peers = Peers(loop, node_id, inheritance.relays_path, inheritance.socket_path(SEALER))
    catalogs = _catalogs(inheritance, shard)
    timings = inheritance.timings.node(node_id)
    published = inheritance.catalog.words
    entrances = _entrances(inheritance, access)
    server = ShardServer(loop, shard, peers, catalogs.take, published, timings=timings)
    entrances.when_issuers_keys_change = server.logins.drop_withdrawn
    server.serve_syncs(syncs_fd)
    commands = ShardCommands(loop, shard, peers)
    commands.listen(inheritance.unix_listeners[shard_name(node_id)])
    sessions = _sessions(loop, inheritance, shard, server)

    def tell_clients() -> None:
        inheritance.nodes.set_connections(node_id, len(server.clients))
        inheritance.nodes.set_sessions(node_id, sessions.count())
        inheritance.nodes.set_logins(node_id, server.logins.counts())
        inheritance.nodes.set_certificates(node_id, entrances.certificates_end_ms())

    notices = Notices([*logs.values(), sessions, server.logins], say_error)
    sessions.tell_notices = lambda: notices.tell(monotonic_ms())
    audit_sender = AuditSender(access.audit, peers, say_error)
    loop.turn_ends.append(audit_sender.tell_acts)
    others = [tell_clients, entrances.look, audit_sender.tell]
    housekeep(loop, server, commands, others, notices)

    def serve() -> None:
        """Serve once the coordinator has sent the topics."""
        catalogs.take()
        if not catalogs.are_known:  # A turn of the loop may have taken it before us.
            loop.call_later(CATALOG_WAIT_MS, serve)
            return
        for name, listener in inheritance.tcp_listeners[node_id].items():
            server.clients.listen(listener, entrances.of[name])
        _listen_to_users(inheritance, node_id, server, sessions)
        inheritance.report_ready()

    serve()
    drain = partial(_drain, loop, inheritance, server, sessions)
    loop.register(inheritance.stop.fd, select.EPOLLIN, lambda _: drain())
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(SWITCH_S)
    loop.run()
    for log in logs.values():
        log.close()
    audit_sender.close()
    notices.tell(monotonic_ms())


def _entrances(inheritance: Inheritance, access: AccessView) -> Entrances:
    config, secret = inheritance.config, inheritance.decoy_secret
    return Entrances(config, access, secret, say_error, has_served=inheritance.has_served)


def _listen_to_users(
    inheritance: Inheritance, node_id: int, server: ShardServer, sessions: Sessions
) -> None:
    """Let in users of this host: by Kafka's protocol all of them, if rights say what they may do;
    to the memory of the logs those who may do everything. And front and agent, for their users."""
    listeners, trusted = inheritance.unix_listeners, inheritance.trusted
    if kafka_name(node_id) in listeners:
        entrance = Entrance(UNIX, users=trusted)
        welcome = (lambda _: True) if inheritance.config.authorizer_class_name else is_ours
        server.clients.listen(listeners[kafka_name(node_id)], entrance, welcome)
    speaking = {front_name(node_id): FRONT_ENTRANCE, agent_name(node_id): AGENT_ENTRANCE}
    for name in speaking.keys() & listeners.keys():
        server.clients.listen(listeners[name], speaking[name], is_ours)
    names = (name for name in (attach_name(node_id), door_name(node_id)) if name in listeners)
    sessions.attaching.listen(map(listeners.__getitem__, names), trusted)


def _sessions(loop: Loop, inheritance: Inheritance, shard: Shard, server: ShardServer) -> Sessions:
    """Open the local door: every attached program may map all logs of this shard."""
    identity = Hello(shard.node_id, inheritance.cluster_id)
    logs = [memory.fd for memory in inheritance.logs.values()]
    descriptors = [inheritance.nodes.fd, inheritance.catalog.fd, *logs]
    sessions = Sessions(loop, identity, shard, descriptors, server)
    server.turns.door = sessions
    server.when_catalog_changes.append(sessions.watchers.catalog_changed)
    return sessions


def _open_log(
    inheritance: Inheritance, number: int, memory: LogMemory, wake_fd: int, syncs_fd: int
) -> Log:
    try:
        log, recovered = open_log(
            memory,
            inheritance.data_dir / "logs" / str(number),
            OsDisk(),
            SyncThread(memory, syncs_fd),
            BackgroundThread(partial(os.eventfd_write, wake_fd, 1)),
            limits=_limits(inheritance),
            generation=inheritance.generation,
            boot_id=boot_id(),
            producers_key=os.urandom(16),
            now_ms=monotonic_ms(),
            pause=_pause,
            existing=partial(_partitions_of, inheritance, number),
        )
    except StoreError as reason:
        raise SystemExit(f"smq: {reason}") from reason
    except OSError as reason:  # The supervisor starts the shard again.
        say_error(f"log {number} cannot be opened: {reason}")
        raise SystemExit(1) from reason
    for line in recovered.damaged:
        say_error(line)
    return log


def _partitions_of(inheritance: Inheritance, log: int) -> set[int]:
    """The numbers of a log's partitions, once the coordinator has sent the topics: of those that
    it leads, has led or is to lead."""
    while not inheritance.catalog.version():
        if inheritance.stop_requested():
            raise SystemExit(0)
        sleep(CATALOG_WAIT_MS / 1000)
    _, published = inheritance.catalog.read()
    numbers = set[int]()
    for topic in Catalog.decode(published).by_name.values():
        pairs = zip(topic.partition_numbers, topic.logs, strict=True)
        numbers.update(number for number, of in pairs if of == log)
        for index, moved in topic.moves.items():
            if log in {moved.target, *(each.log for each in moved.leaderships)}:
                numbers.add(topic.partition_numbers[index])
    return numbers


def _pause() -> int:
    """Between two tries to read what a start must have."""
    sleep(PAUSE_S)
    return monotonic_ms()


def _wake_up(loop: Loop) -> int:
    """A descriptor that wakes the loop when a thread writes to it."""
    fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    loop.register(fd, select.EPOLLIN, lambda _: _swallow(fd))
    return fd


def _limits(inheritance: Inheritance) -> WalLimits:
    """A log's limits: of the page cache, and of its shard's memory for reads past it, its part."""
    config = inheritance.config
    limits = WalLimits(config.wal_segment_bytes, config.wal_bytes_max, config.wal_keep_bytes)
    if config.page_cache_bytes < 0:
        return limits
    return limits._replace(
        cached_bytes_max=config.page_cache_bytes // inheritance.log_count,
        blocks=PAST_CACHE_BLOCKS // len(inheritance.logs),
    )


def _swallow(fd: int) -> None:
    try:
        os.eventfd_read(fd)
    except BlockingIOError:
        return


def _catalogs(inheritance: Inheritance, shard: Shard) -> Catalogs:
    def ends() -> list[KnownEnds]:
        try:
            return known_ends(inheritance.data_dir / STORE, sorted(shard.logs))
        except StoreError as reason:
            if inheritance.has_served:  # The logs knew it then, and their memory was kept since.
                say_error(f"{_UNKNOWN_ENDS}: {reason}")
                return []
            raise _ended(reason) from reason

    def sync() -> None:
        coordinator = Asker(inheritance.socket_path(COORDINATOR))
        try:
            coordinator.ask(SyncManifest())
        except StoreError as reason:
            raise _ended(reason) from reason
        finally:
            coordinator.close()

    return Catalogs(inheritance.catalog, shard, ends, sync, monotonic_ms)


def _ended(reason: StoreError) -> SystemExit:
    """The supervisor starts the shard again."""
    say_error(f"{_UNKNOWN_ENDS}: {reason}")
    return SystemExit(1)


def housekeep(
    loop: Loop,
    server: ShardServer,
    commands: ShardCommands,
    others: Sequence[Callable[[], None]],
    notices: Notices,
) -> None:
    """Do background work once a second, and watch the space when the WAL grows."""

    def once() -> None:
        server.clients.close_idle()
        server.count_turns()
        server.logins.notice_failures()
        for other in others:
            other()
        commands.watch_space()
        commands.watch_transactions()
        notices.tell(monotonic_ms())
        gc.collect(0)
        loop.call_later(HOUSEKEEPING_MS, once)

    loop.call_later(HOUSEKEEPING_MS, once)
    loop.turn_ends.append(commands.watch_growth)


def _drain(loop: Loop, inheritance: Inheritance, server: ShardServer, sessions: Sessions) -> None:
    """Stop: answer the requests received so far, then leave."""
    loop.unregister(inheritance.stop.fd)
    server.stop()
    sessions.stop()

    def check() -> None:
        if len(server.clients) == sessions.count() == 0:
            loop.stop()
        else:
            loop.call_later(10, check)

    check()
    loop.call_later(DRAIN_MS, loop.stop)
