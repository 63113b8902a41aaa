"""`smq serve` up to the first fork, in the order that wastes least on a refusal.

    lock the data directory → sizes → sockets → kernels → check for data of a newer SMQ
        → a generation, durable → the time line → memory → forks

Refusals come before any resource is taken. Nothing here starts a thread: a fork copies only one
thread, but the locks of all.
"""

import gc
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from shm.catalog import CatalogBlock
from shm.cluster import ClusterBlock
from shm.layout import PARTITIONS_PER_LOG_MAX
from shm.peer import ROOT
from shm.segment import LogMemory
from shm.timings import Timings
from smq.app.agent.main import why_no_grpc
from smq.app.process.clock import wall_ms
from smq.app.process.epochs import epoch_sockets
from smq.app.process.inheritance import (
    COORDINATOR,
    RELAYS,
    SEALER,
    Inheritance,
    Stop,
    agent_name,
    attach_name,
    door_name,
    front_name,
    kafka_name,
    open_dir,
    shard_name,
    socket_path,
)
from smq.app.process.machine import give_back_code, room_for, room_for_logs
from smq.app.process.metrics_tokens import why_no_metrics_tokens
from smq.app.process.refusal import or_refuse
from smq.app.process.token_keys import why_no_tokens, why_unusable
from smq.app.process.unix_users import trusted_users, with_super_users
from smq.app.supervisor import timeline
from smq.app.supervisor.datadir import DataDirectory, read_meta, unusable
from smq.app.supervisor.listeners import (
    PASSABLE,
    PRIVATE,
    addresses_of,
    open_http_listener,
    open_nameless,
    open_tcp_listeners,
    open_unix_listeners,
    remove_sockets,
    reserve_grpc_ports,
)
from smq.app.supervisor.modes import DECOYS, close_to_others, passes_by_rules, set_umask
from smq.app.supervisor.supervisor import Mains, Supervisor
from smq.filer.location import Location
from smq.log.files.disk import OsDisk, told
from smq.log.files.footprint import drops_pages
from smq.log.files.newer import refuse_newer as refuse_newer_log
from smq.model.config import SETTINGS, Config
from smq.model.config_rules import size, size_wal
from smq.model.errors import StoreError
from smq.model.printable import printable
from smq.security.access import PUBLISHED_BYTES_MAX
from smq.security.listener_rules import problems_of_listeners, takes_tokens_by_grpc
from smq.security.listeners import (
    GRPC,
    HTTP,
    UNIX,
    Endpoint,
    grpc_listeners,
    grpc_ports,
    listeners_of,
)
from smq.store.database import refuse_newer as refuse_newer_database
from smq.store.store import FILE_NAME as STORE

PINS = "pins"  # In the data directory: links to log segments for a snapshot.
TOKEN_BYTES = 18  # Of the console's token: not guessable.
DECOY_BYTES = 32  # As HMAC-SHA-256 uses.
LOGS = "logs"  # In the data directory: a directory for each log.
COMPILER = "libllvmlite"  # Not needed again once kernels are loaded.


def serve(config: Config, memory_bytes: int, mains: Mains, warm: Callable[[], None]) -> int:
    """Serve until a signal stops us; returns the exit code. Raises SystemExit with a sentence.

    `warm` loads or compiles the kernels.
    """
    set_umask(config)
    directory = DataDirectory(config.data_dir)
    _close_to_others(config)
    log_count = max(directory.meta.log_count, config.shards)
    sized = size(config, log_count, memory_bytes)
    misfits = sized if isinstance(sized, list) else []
    problems = _problems_of_doors(config)
    config = or_refuse([*misfits, *problems, *Location.of(config).problems()] or sized)
    config = size_wal(config, log_count, room_for_logs(config.data_dir / LOGS))
    trusted, room = trusted_users(config), room_for(config.max_connections)
    super_users = with_super_users(config, trusted)
    config = replace(config, max_connections=room, super_users=super_users)
    config = _bound_page_cache(config)
    runtime_dir = config.runtime_dir / directory.meta.cluster_id
    tcp_listeners = open_tcp_listeners(config)
    http_listener = open_http_listener(config)
    config = _with_ports(config, http_listener, grpc_sockets := reserve_grpc_ports(config))
    doors = _open_unix(config, runtime_dir, trusted)
    shutil.rmtree(config.data_dir / PINS, ignore_errors=True)  # Left by a snapshot that was killed.
    _say_settings(config)
    warm()
    _refuse_newer(config.data_dir, runtime_dir)
    meta = directory.start(config.shards)
    _resume_time(config.data_dir)
    estate = Inheritance(
        config=config,
        data_dir=config.data_dir,
        cluster_id=meta.cluster_id,
        runtime_dir=runtime_dir,
        generation=meta.generation,
        log_count=meta.log_count,
        nodes=ClusterBlock.create(config.node_ids, os.getpid(), wall_ms()),
        catalog=CatalogBlock.create(),
        access=CatalogBlock.create(PUBLISHED_BYTES_MAX, "smq-access"),
        timings=Timings.create(config.node_ids),
        logs={log: _log_memory(log, config) for log in range(meta.log_count)},
        tcp_listeners=tcp_listeners,
        addresses=_addresses(config, runtime_dir, tcp_listeners, doors),
        trusted=trusted,
        **doors.ways(),
        epoch_sockets=epoch_sockets(),
        decoy_secret=_decoy_secret(config),
        unix_listeners=doors.listeners,
        stop=Stop(),
        http_listener=http_listener,
        grpc_sockets=grpc_sockets,
        console_token="" if http_listener is None else secrets.token_urlsafe(TOKEN_BYTES),
    )
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "a thread was started before the forks"
    give_back_code(COMPILER)
    gc.freeze()  # Keeps collections from touching, and so copying, shared pages.
    gc.enable()  # A start has none: all that it makes stays.
    exit_code = Supervisor(directory, estate, mains, say).run()
    _remove_all_sockets(runtime_dir)
    return exit_code


def _with_ports(
    config: Config, http: socket.socket | None, grpc_sockets: Mapping[str, socket.socket]
) -> Config:
    """The config with the ports that were free in place of 0: clients learn them from it."""
    opened = {} if http is None else {"http.port": http}
    ports = {
        SETTINGS[name].key: each.getsockname()[1]
        for name, each in {**opened, **grpc_sockets}.items()
    }
    return replace(config, **ports)


class _UnixDoors(NamedTuple):
    """Unix listeners by name, and the descriptors that alone lead to those without one: to the
    coordinator's for relayed requests, and, by node, to those where front and agent ask for their
    users."""

    listeners: dict[str, socket.socket]
    relays_fd: int
    front_fds: dict[int, int]
    agent_fds: dict[int, int]

    def ways(self) -> dict[str, Any]:
        """The descriptors, as processes inherit them."""
        fds = self._asdict()
        del fds["listeners"]
        return fds


def _open_unix(config: Config, runtime_dir: Path, trusted: Collection[int]) -> _UnixDoors:
    """Our processes' listeners, and those for this host's users. Without access rules everybody
    could do everything at the latter, so that only our own user and root reach them; and front and
    agent ask for everybody alike.
    """
    nodes = config.node_ids
    ours = [*map(shard_name, nodes), *map(attach_name, nodes), COORDINATOR, SEALER]
    for_users = [*map(kafka_name, nodes)]
    if not {ROOT, os.getuid()}.issuperset(trusted):
        for_users += map(door_name, nodes)
    mode = PASSABLE if config.authorizer_class_name else PRIVATE
    opened = open_unix_listeners(runtime_dir, ours)
    opened |= open_unix_listeners(open_dir(runtime_dir), for_users, mode)
    opened[RELAYS], relays_fd = open_nameless(runtime_dir, RELAYS)
    front_fds, agent_fds = dict[int, int](), dict[int, int]()
    has_rules = bool(config.authorizer_class_name)
    for node in nodes if has_rules and config.http_port >= 0 else ():
        opened[front_name(node)], front_fds[node] = open_nameless(runtime_dir, front_name(node))
    for node in nodes if has_rules and grpc_ports(config) else ():
        opened[agent_name(node)], agent_fds[node] = open_nameless(runtime_dir, agent_name(node))
    return _UnixDoors(opened, relays_fd, front_fds, agent_fds)


def _addresses(
    config: Config,
    runtime_dir: Path,
    tcp_listeners: Mapping[int, Mapping[str, socket.socket]],
    doors: _UnixDoors,
) -> dict[str, dict[int, Endpoint]]:
    """Where clients reach each listener. SMQ's own take a path with port 0 for a unix socket; those
    of front and agent are their descriptors."""
    directory = open_dir(runtime_dir)
    paths = {node: str(socket_path(directory, kafka_name(node))) for node in config.node_ids}
    sockets = {node: Endpoint(path, 0) for node, path in paths.items()}
    nameless = {HTTP: doors.front_fds, GRPC: doors.agent_fds}
    told = {
        name: {node: Endpoint(f"/proc/self/fd/{fd}", 0) for node, fd in fds.items()}
        for name, fds in nameless.items()
        if fds  # Else it may be the name of a listener of Kafka's.
    }
    return {**addresses_of(config, tcp_listeners), UNIX: sockets, **told}


def _refuse_newer(data_dir: Path, runtime_dir: Path) -> None:
    try:
        refuse_newer(data_dir)
    except SystemExit:
        _remove_all_sockets(runtime_dir)
        raise


def _remove_all_sockets(runtime_dir: Path) -> None:
    remove_sockets(runtime_dir)
    remove_sockets(open_dir(runtime_dir))


def _problems_of_doors(config: Config) -> list[str]:
    """What is wrong with the listeners, or else with their keys."""
    problems = [problem.sentence for problem in problems_of_listeners(config)]
    if problems:
        return problems
    if config.http_port >= 0 and (problem := why_no_metrics_tokens(config)):
        problems.append(problem)
    if missing := why_no_grpc(config):
        problems.append(missing)
    of_grpc = grpc_listeners(config).values()
    reasons = [why_no_tokens(config, each) for each in listeners_of(config)]
    reasons += [
        why_unusable(config, each) for each in of_grpc if takes_tokens_by_grpc(config, each)
    ]
    problems += filter(None, reasons)
    for listener in (*listeners_of(config), *of_grpc):
        if listener.protocol.has_tls:
            from smq.app.process.key_stores import (  # noqa: PLC0415  (loads OpenSSL)
                TlsSettings,
                UnusableKeys,
                context_of,
            )

            try:
                context_of(TlsSettings.of(config, listener))
            except UnusableKeys as reason:
                problems.append(str(reason))
    return problems


def _close_to_others(config: Config) -> None:
    try:
        close_to_others(config)
    except OSError as reason:
        raise SystemExit(f"smq: {unusable(config.data_dir, reason)}") from reason


def _bound_page_cache(config: Config) -> Config:
    """The config, without a bound where the file system keeps the pages that it is to drop."""
    if config.page_cache_bytes < 0:
        return config
    why = "this file system keeps its pages"
    try:
        if drops_pages(OsDisk(), config.data_dir):
            return config
    except OSError as reason:
        why = f"it cannot be tried here: {told(reason)}"
    say(f"page.cache.bytes: {why}; until the next start the system decides how many stay")
    return replace(config, page_cache_bytes=-1)


def _decoy_secret(config: Config) -> bytes:
    """The secret of this directory's decoys, made at the first start with logins: with another one
    they would change."""
    has_http_users = config.http_port >= 0 and config.authorizer_class_name
    listeners = *listeners_of(config), *grpc_listeners(config).values()
    if not (has_http_users or any(each.protocol.has_sasl for each in listeners)):
        return b""
    path = config.data_dir / DECOYS
    try:
        if not (path.exists() and path.stat().st_size >= DECOY_BYTES):  # Else it is no secret.
            OsDisk().replace(path, secrets.token_bytes(DECOY_BYTES))
        return path.read_bytes()[:DECOY_BYTES]
    except OSError as reason:
        raise SystemExit(f"smq: {unusable(config.data_dir, reason)}") from reason


def _resume_time(data_dir: Path) -> None:
    try:
        timeline.resume(data_dir)
    except OSError as reason:
        raise SystemExit(f"smq: {unusable(data_dir, reason)}") from reason


def refuse_newer(data_dir: Path) -> None:
    """Check the data that a start would write. Raises SystemExit if a newer SMQ wrote any, or a
    later generation."""
    try:
        refuse_newer_database(data_dir / STORE)
        generation = read_meta(data_dir).generation + 1
        for directory in sorted((data_dir / LOGS).glob("*")):
            refuse_newer_log(directory, OsDisk(), generation)
    except StoreError as reason:
        raise SystemExit(f"smq: {reason}") from reason


def _log_memory(log: int, config: Config) -> LogMemory:
    return LogMemory.create(
        log, config.ring_bytes, config.wal_segment_bytes, PARTITIONS_PER_LOG_MAX
    )


def _say_settings(config: Config) -> None:
    say(f"smq serves {config.data_dir}")
    say("settings: " + ", ".join(f"{name} = {value}" for name, value in config.changed().items()))
    if passing := passes_by_rules(config):
        say(passing)


def say(sentence: str) -> None:
    """Print a line of news. A closed stdout is no reason to stop."""
    with suppress(OSError):
        sys.stdout.write(printable(sentence) + "\n")
        sys.stdout.flush()
