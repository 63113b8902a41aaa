"""The supervisor: owns the resources that must outlive the other processes, which it forks,
watches and restarts.

It touches no data and always has a single thread, so a fork copies nothing in motion.

A process that dies is restarted at once, with growing pauses if it keeps dying young. A restarted
shard gets the next generation, made durable before the fork; leader epochs that the coordinator
draws come from the same counter. SIGTERM, SIGINT and SIGHUP stop the
broker: the agent is asked to end first, for its last commits need the others; then these are, and
all are killed at the deadline.

`smq.app.supervisor.serve` prepares its resources; `smq.app.process.child` begins and ends a fork.
"""

import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from shm.cluster import Node
from smq.app.process import child
from smq.app.process.clock import monotonic_ms, wall_ms
from smq.app.process.epochs import give_epochs
from smq.app.process.inheritance import (
    AGENT,
    COORDINATOR,
    FRONT,
    SEALER,
    SUPERVISOR,
    Inheritance,
    Stop,
    shard_name,
)
from smq.app.process.loop import Loop
from smq.app.process.status import ProcessStatus, Status, status_path
from smq.app.supervisor import timeline
from smq.app.supervisor.datadir import DataDirectory
from smq.model.config import bracketed
from smq.security.listeners import UNIX, Endpoint, grpc_listeners, http_told_host, listeners_of

STOP_DEADLINE_MS = 4500  # The documented limit is 5 s; the kernel needs the rest to free memory.
AGENT_FIRST_MS = 1000  # Then the others end with it: a client that does not read holds up no stop.
assert AGENT_FIRST_MS < STOP_DEADLINE_MS
LATE_MS = 5000  # A start takes one second; two, with a large log to recover.
YOUNG_MS = 1000  # A process that dies younger has not served.
RESTART_PAUSE_MS_MIN = 100
RESTART_PAUSE_MS_MAX = 5000


class Mains(NamedTuple):
    """The main functions of the processes. Each returns when `inheritance.stop_requested()`."""

    shard: Callable[[Inheritance, int], None]
    coordinator: Callable[[Inheritance], None]
    sealer: Callable[[Inheritance], None]
    front: Callable[[Inheritance], None]
    agent: Callable[[Inheritance], None]


@dataclass(slots=True)
class Process:
    """A process of the broker across restarts. `pid` is 0 while it is down."""

    name: str
    main: Callable[[Inheritance], None]
    node_id: int | None = None
    pid: int = 0
    pidfd: int = -1
    ready_fd: int = -1
    generation: int = -1
    started_ms: int = 0
    ready: bool = False
    restarts: int = 0
    died_young: int = 0

    def invariants(self) -> None:
        assert (self.pid == 0) == (self.pidfd == -1)
        assert self.pid or not self.ready

    def supervisor_fds(self) -> list[int]:
        """Descriptors by which the supervisor watches it."""
        return [fd for fd in (self.pidfd, self.ready_fd) if fd >= 0]


_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (what is listened on)


def console_address(host: str, port: int) -> str:
    """Where a browser on this host finds the console of a listener: under no name it answers."""
    return f"{bracketed(_LOOPBACK.get(host, host))}:{port}"


def restart_pause_ms(died_young: int) -> int:
    """How long to wait before restarting a process that has died young so often in a row."""
    if died_young <= 1:
        return 0
    return int(min(RESTART_PAUSE_MS_MIN * 2 ** (died_young - 2), RESTART_PAUSE_MS_MAX))


def _listed(addresses: Mapping[int, Endpoint]) -> str:
    return ",".join(f"{bracketed(host)}:{port}" for host, port in addresses.values())


@dataclass(slots=True)
class Supervisor:
    """The processes, and the resources they share.

    Unless the supervisor is stopping, each process that is down has a restart pending.
    """

    directory: DataDirectory
    estate: Inheritance
    mains: Mains
    say: Callable[[str], None]
    loop: Loop = field(default_factory=Loop)
    processes: list[Process] = field(default_factory=list)
    announced: bool = False
    stopping: bool = False
    all_asked: bool = False  # To end.
    exit_code: int = 0

    def run(self) -> int:
        """Serve until asked to stop; returns the exit code."""
        self.processes = [*map(self._shard, self.estate.tcp_listeners)]
        self.processes.append(Process(COORDINATOR, self.mains.coordinator))
        self.processes.append(Process(SEALER, self.mains.sealer))
        if self.estate.http_listener is not None:
            self.processes.append(Process(FRONT, self.mains.front))
        if self.estate.grpc_sockets:
            self.processes.append(Process(AGENT, self.mains.agent))
        self.estate.stop.on_signals(child.STOP_SIGNALS)
        self.loop.register(self.estate.stop.fd, select.EPOLLIN, lambda _: self._stop())
        for process in self.processes:
            self._start(process)
        if SUPERVISOR in self.estate.epoch_sockets:
            end = self.estate.epoch_sockets[SUPERVISOR]
            give_epochs(self.loop, end, self.directory.take_generation)
        self.loop.call_later(LATE_MS, self._tell_who_is_late)
        self.loop.call_later(timeline.KEEP_EVERY_MS, self._keep_time)
        self.loop.run()
        status_path(self.directory.path).unlink(missing_ok=True)
        return self.exit_code

    def _shard(self, node_id: int) -> Process:
        def main(inheritance: Inheritance) -> None:
            self.mains.shard(inheritance, node_id)

        return Process(shard_name(node_id), main, node_id)

    def _start(self, process: Process) -> None:
        """Fork a process under the last generation taken. Raises OSError if resources run out."""
        process.generation = self.directory.meta.generation
        process.started_ms = monotonic_ms()
        process.ready_fd, ready_write = os.pipe2(os.O_CLOEXEC)
        share = replace(
            self.estate,
            generation=process.generation,
            stop=Stop(),
            ready_fd=ready_write,
            has_served=self.announced,
        )
        self._publish(process)
        try:
            process.pid = child.fork(process.name, lambda: self._live(process, share), share.stop)
        except OSError:
            self._forget_ready_fd(process)
            raise
        finally:
            os.close(ready_write)
            share.stop.close()
        process.pidfd = os.pidfd_open(process.pid)
        self._publish(process)
        self.loop.register(process.pidfd, select.EPOLLIN, lambda _: self._ended(process))
        self.loop.register(process.ready_fd, select.EPOLLIN, lambda _: self._reported(process))
        self._write_status()

    def _live(self, process: Process, share: Inheritance) -> None:
        """In the child: release what is not ours, then run the process's main."""
        self.directory.close_in_child()
        self.estate.stop.close()
        for each in self.processes:
            for fd in each.supervisor_fds():
                os.close(fd)
        process.main(share.keep(process.name, process.node_id))

    def _reported(self, process: Process) -> None:
        """A process has reported that it serves, or has closed the pipe before."""
        process.ready = bool(os.read(process.ready_fd, 1))
        self._forget_ready_fd(process)
        self._write_status()
        if not self.announced and all(each.ready for each in self.processes):
            self.announced = True
            self._say_console()
            self._say_other_listeners()
            self.say(f"ready {self._bootstrap()}")

    def _say_console(self) -> None:
        listener = self.estate.http_listener
        # With access rules nobody may see it (smq.front.rights).
        if listener is not None and not self.estate.config.authorizer_class_name:
            address = console_address(*listener.getsockname()[:2])
            scheme = "https" if self.estate.config.http_security_protocol == "SSL" else "http"
            self.say(f"console {scheme}://{address}/#token={self.estate.console_token}")

    def _say_other_listeners(self) -> None:
        """`ready` has the first one's addresses."""
        _, *others = (each.name for each in listeners_of(self.estate.config))
        for name in others:
            self.say(f"listener {name} {_listed(self.estate.addresses[name])}")
        of_grpc = grpc_listeners(self.estate.config).values()
        for listener in (*listeners_of(self.estate.config), *of_grpc):
            if listener.ignores_client_auth(self.estate.config):
                self.say(
                    f"listener {listener.name} asks for no certificates: with logins that takes "
                    f"listener.name.{listener.name.lower()}.ssl.client.auth"
                )

    def _tell_who_is_late(self) -> None:
        late = [process.name for process in self.processes if not process.ready]
        if not (self.announced or self.stopping):
            self.say(f"still starting: {', '.join(late)}")
            self.loop.call_later(LATE_MS, self._tell_who_is_late)

    def _keep_time(self) -> None:
        with suppress(OSError):  # A full disk: after the host's next start, ages are less exact.
            timeline.keep(self.directory.path)
        self.loop.call_later(timeline.KEEP_EVERY_MS, self._keep_time)

    def _forget_ready_fd(self, process: Process) -> None:
        if process.ready_fd >= 0:
            self.loop.unregister(process.ready_fd)
            os.close(process.ready_fd)
            process.ready_fd = -1

    def _ended(self, process: Process) -> None:
        """Reap a process that has exited, and restart it unless there is a reason not to."""
        how = self._reap(process)
        if self.stopping:
            self._stop_when_all_ended()
        elif how.exit_code == child.EXIT_REFUSED and not self.announced:
            self.exit_code = 1
            self._stop()
        else:
            young = monotonic_ms() - process.started_ms < YOUNG_MS
            process.died_young = process.died_young + 1 if young else 0
            pause_ms = restart_pause_ms(process.died_young)
            self.say(f"{how.words}; it is restarted{f' in {pause_ms} ms' if pause_ms else ''}")
            self.loop.call_later(pause_ms, lambda: self._restart(process))

    def _reap(self, process: Process) -> child.Ending:
        _, wait_status = os.waitpid(process.pid, 0)
        how = child.Ending(process.name, process.pid, os.waitstatus_to_exitcode(wait_status))
        self.loop.unregister(process.pidfd)
        os.close(process.pidfd)
        self._forget_ready_fd(process)
        process.pid, process.pidfd, process.ready = 0, -1, False
        self._publish(process)
        self._write_status()
        return how

    def _restart(self, process: Process) -> None:
        if self.stopping:
            return
        try:
            if process.node_id is not None:
                self.directory.take_generation()
            self._start(process)
        except OSError as reason:  # A full disk or too many processes: it may pass.
            self.say(f"{process.name} cannot be started yet; the others continue: {reason}")
            self.loop.call_later(RESTART_PAUSE_MS_MAX, lambda: self._restart(process))
        else:
            process.restarts += 1
            self._write_status()

    def _stop(self) -> None:
        """Ask all processes to end; kill those that do not."""
        self.loop.unregister(self.estate.stop.fd)
        if self.stopping:
            return
        self.stopping = True
        self.say("stopping")
        self._ask_to_end([each for each in self.processes if each.name == AGENT])
        self.loop.call_later(AGENT_FIRST_MS, self._ask_the_rest)
        self.loop.call_later(STOP_DEADLINE_MS, self._kill_the_rest)
        self._stop_when_all_ended()

    def _stop_when_all_ended(self) -> None:
        if not any(process.pid for process in self.processes):
            self.loop.stop()
        elif not any(process.pid for process in self.processes if process.name == AGENT):
            self._ask_the_rest()

    def _ask_the_rest(self) -> None:
        if not self.all_asked:
            self.all_asked = True
            self._ask_to_end([each for each in self.processes if each.name != AGENT])

    def _ask_to_end(self, processes: Sequence[Process]) -> None:
        for process in processes:
            if process.pid:
                signal.pidfd_send_signal(process.pidfd, signal.SIGTERM)

    def _kill_the_rest(self) -> None:
        for process in self.processes:
            if process.pid:
                self.say(f"{process.name} did not stop in {STOP_DEADLINE_MS} ms; it is killed")
                signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)

    def _publish(self, process: Process) -> None:
        """Publish a node's state to the other processes."""
        process.invariants()
        if process.node_id is not None:
            first = next(iter(self.estate.tcp_listeners[process.node_id].values()))
            port = first.getsockname()[1]
            node = Node(process.node_id, process.pid, port, process.generation, wall_ms())
            self.estate.nodes.set_node(node)

    def _bootstrap(self) -> str:
        """Where clients reach the first listener of each node."""
        return _listed(next(iter(self.estate.addresses.values())))

    def _http(self) -> str:
        listener = self.estate.http_listener
        if listener is None:
            return ""
        host = http_told_host(self.estate.config)
        return f"{bracketed(host)}:{listener.getsockname()[1]}"

    def _grpc(self, setting: str) -> str:
        reserved = self.estate.grpc_sockets.get(setting)
        if reserved is None:
            return ""
        return f"{bracketed(self.estate.config.grpc_host)}:{reserved.getsockname()[1]}"

    def _write_status(self) -> None:
        estate, nodes = self.estate, self.estate.nodes

        def memory_path(fd: int) -> str:
            return f"/proc/{nodes.supervisor_pid}/fd/{fd}"

        status = Status(
            cluster_id=estate.cluster_id,
            bootstrap=self._bootstrap(),
            http=self._http(),
            grpc=self._grpc("grpc.port"),
            agent=self._grpc("agent.port"),
            supervisor_pid=nodes.supervisor_pid,
            started_ms=nodes.started_ms,
            cluster_block=memory_path(nodes.fd),
            timings=memory_path(estate.timings.fd),
            log_memories=[memory_path(memory.fd) for memory in estate.logs.values()],
            ring_bytes=estate.config.ring_bytes,
            wal_segment_bytes=estate.config.wal_segment_bytes,
            wal_bytes_max=estate.config.wal_bytes_max,
            filer_root=estate.config.filer_root,
            processes={
                process.name: ProcessStatus(
                    pid=process.pid, ready=process.ready, restarts=process.restarts
                )
                for process in self.processes
            },
            sockets=[path for path, _ in estate.addresses[UNIX].values()],
            listeners=[each.name for each in listeners_of(estate.config)],
        )
        with suppress(OSError):  # A full disk is no reason to stop: the file is news, not state.
            status.write(self.directory.path)
