"""The main of the coordinator: opens the store, serves links, shuts down cleanly."""

import os
import random
import select
from functools import partial

from shm.catalog import CATALOG_BYTES_MAX
from shm.layout import PARTITIONS_PER_LOG_MAX
from shm.peer import is_ours
from smq.app.coordinator.server import Around, CoordinatorServer
from smq.app.process.acceptor import Acceptor
from smq.app.process.audit_files import DIRECTORY, NOWHERE, AuditFiles, AuditLog, FileLimits
from smq.app.process.clock import now
from smq.app.process.collector import collect_all, collect_only_young
from smq.app.process.inheritance import COORDINATOR, RELAYS, Inheritance, shard_name
from smq.app.process.loop import Loop
from smq.app.process.unix_users import principal_of_user
from smq.coordinator.coordinator import Coordinator
from smq.coordinator.topics import Cluster
from smq.model.errors import StoreError
from smq.model.printable import say_error
from smq.security.audit import WINDOW_MS, Event, line_of
from smq.store.store import FILE_NAME, Store


def coordinator_main(inheritance: Inheritance) -> None:
    """Serve until asked to stop. Requests unanswered by then have no effect."""
    config, loop = inheritance.config, Loop()
    try:
        store = Store.open(inheritance.data_dir / FILE_NAME)
    except StoreError as reason:
        raise SystemExit(f"smq: {reason}") from reason
    generations = inheritance.nodes
    cluster = Cluster(
        inheritance.cluster_id,
        inheritance.log_count,
        PARTITIONS_PER_LOG_MAX,
        CATALOG_BYTES_MAX,
        lambda node: next(each.generation for each in generations.nodes() if each.id == node),
    )
    chance = random.SystemRandom()

    def build() -> Coordinator:
        collect_all()  # One that is discarded has cycles: the next build frees it.
        return Coordinator(store, config, cluster, chance, now())

    audit_log = audit_log_of(inheritance)
    around = Around(
        inheritance.known_nodes,
        inheritance.catalog.publish,
        inheritance.access.publish,
        now,
        lambda node: inheritance.socket_path(shard_name(node)),
        inheritance.timings.coordinator_errors(),
        audit_log,
        inheritance.epoch_sockets.get(COORDINATOR),
    )
    try:
        server = CoordinatorServer(loop, build, around)
    except StoreError as reason:
        raise SystemExit(f"smq: {reason}") from reason
    tell = partial(_tell, inheritance, audit_log)
    tell("start")
    if config.is_audited:
        _wake(loop)
    loop.run_once(0)  # Publishes the catalog before the first request.
    listeners, strange = inheritance.unix_listeners, partial(server.accepted, may_relay=False)
    Acceptor(loop, listeners[COORDINATOR], strange, is_ours)
    if RELAYS in listeners:
        Acceptor(loop, listeners[RELAYS], server.accepted, is_ours)
    loop.register(inheritance.stop.fd, select.EPOLLIN, lambda _events: loop.stop())
    collect_only_young()
    inheritance.report_ready()
    loop.run()
    server.close()
    store.close()
    tell("stop")


def audit_log_of(inheritance: Inheritance) -> AuditLog:
    """The audit log that the settings ask for."""
    config = inheritance.config
    if not config.is_audited:
        return NOWHERE
    limits = FileLimits(config.audit_log_bytes, config.audit_log_files)
    return AuditFiles(inheritance.data_dir / DIRECTORY, limits, say_error)


def _wake(loop: Loop) -> None:
    """Have a turn a minute: its end tells how many denials there were."""
    loop.call_later(WINDOW_MS, partial(_wake, loop))


def _tell(inheritance: Inheritance, audit_log: AuditLog, event: str) -> None:
    """Tell that the coordinator starts or stops: a start without a stop before it was a death."""
    words = (
        f"broker process {inheritance.nodes.supervisor_pid}, as {principal_of_user(os.getuid())}"
    )
    audit_log.tell_acts([line_of(Event(event, detail=words), now().wall_ms)])
