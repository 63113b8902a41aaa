"""The data of /debug that is too expensive for /metrics: it is collected only on request.

It works while a shard hangs, as it asks no shard: connections come from the kernel, times from
shared memory, groups from the store. Only the groups' states come from the coordinator.
"""

import subprocess
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import psutil

from gateway.apis.table import API_BY_KEY, Where
from smq.app.front.desk.desk import SdkDesk
from smq.app.process.program import environment
from smq.app.process.status import Status, attach_timings, read_status
from smq.model.errors import BrokerError, PeerError, Unavailable
from smq.store.overview import open_overview

LOCK_FILES = ("lock", "supervisor.lock")
STACK_S_MAX = 10.0  # Timeout of py-spy for the stacks of one process.
WAITS_FOR = {Where.KERNEL: "the disk", Where.COORDINATOR: "the coordinator", Where.SHARD: "records"}

Rows = list[dict[str, Any]]
Inside = Callable[[], Rows]


def insides(data_dir: Path) -> dict[str, Inside]:
    """The pages by name. Each raises Unavailable if no broker runs or a tool is missing."""
    pages: dict[str, Callable[[Status, Path], Iterator[dict[str, Any]]]] = {
        "slow": _slow,
        "connections": _connections,
        "members": _members,
        "helpers": _helpers,
        "locks": _locks,
        "stacks": _stacks,
    }

    def page(name: str) -> Inside:
        return lambda: list(pages[name](_status(data_dir), data_dir))

    return {name: page(name) for name in pages}


def _status(data_dir: Path) -> Status:
    found = read_status(data_dir)
    if found is None:
        raise Unavailable(str(data_dir), "no broker serves it")
    return found[0]


def _slow(status: Status, _data_dir: Path) -> Iterator[dict[str, Any]]:
    timings = attach_timings(status)
    if timings is None:
        return
    rows = [
        (each.at_ms, node_id, each)
        for node_id in timings.node_ids
        for each in timings.node(node_id).slow()
    ]
    rows.sort(key=lambda row: row[0], reverse=True)
    for _, node_id, each in rows:
        api = API_BY_KEY.get(each.api_key)
        yield {
            "node": node_id,
            "at_ms": each.at_ms,
            "api": api.name if api else str(each.api_key),
            "version": each.version,
            "client": each.client,
            "bytes": each.bytes,
            "handled_ms": each.handled_us / 1000,
            "waited_ms": each.waited_us / 1000,
            "waited_for": WAITS_FOR[api.where] if api else "",
            "sent_ms": each.sent_us / 1000,
        }


def _connections(status: Status, _: Path) -> Iterator[dict[str, Any]]:
    def look(name: str, process: psutil.Process) -> Iterator[dict[str, Any]]:
        for each in process.net_connections("tcp") if name.startswith("shard-") else ():
            if each.raddr:
                yield {
                    "process": name,
                    "client": f"{each.raddr.ip}:{each.raddr.port}",
                    "port": each.laddr.port,
                    "state": each.status,
                    "descriptor": each.fd,
                }

    return _of_each(status, look)


def _members(_: Status, data_dir: Path) -> Iterator[dict[str, Any]]:
    """Groups, their members and the members' timers."""
    overview = open_overview(data_dir / "store.sqlite")
    try:
        groups = overview.groups()
    finally:
        overview.close()
    try:
        states = {each.group: each.state for each in SdkDesk(data_dir).groups()}
    except (BrokerError, PeerError):  # The coordinator hangs: show what the store has.
        states = {}
    for group in groups:
        yield {**group._asdict(), "state": states.get(group.group_id, "unknown"),
               "members": [each._asdict() for each in group.members]}  # fmt: skip


def _helpers(status: Status, _: Path) -> Iterator[dict[str, Any]]:
    """Our processes and their children (workers, decoders, queries), with thread counts."""
    ours = {each.pid for each in status.processes.values()}

    def look(name: str, process: psutil.Process) -> Iterator[dict[str, Any]]:
        started = [each for each in process.children() if each.pid not in ours]
        for each in (process, *started):
            threads = {thread.id: _thread_name(each.pid, thread.id) for thread in each.threads()}
            yield {
                "process": name,
                "pid": each.pid,
                "is_helper": each.pid != process.pid,
                "state": each.status(),
                "threads": threads,
            }

    return _of_each(status, look)


def _thread_name(pid: int, tid: int) -> str:
    try:
        return Path(f"/proc/{pid}/task/{tid}/comm").read_text().strip()
    except OSError:
        return ""


def _locks(_: Status, data_dir: Path) -> Iterator[dict[str, Any]]:
    """The holders of the data directory's locks, from the kernel."""
    files = [data_dir / name for name in LOCK_FILES]
    names = {each.stat().st_ino: each.name for each in files if each.exists()}
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        inode = int(fields[-3].rsplit(":", 1)[1])
        if inode in names and "->" not in fields:
            yield {"file": names[inode], "kind": fields[3], "pid": int(fields[4])}


def _stacks(status: Status, _: Path) -> Iterator[dict[str, Any]]:
    """The Python stack of each thread, by py-spy, which does not pause the process."""
    program = _py_spy()
    if program is None:
        raise Unavailable("py-spy", "it is not installed; `pip install 'smq-broker[debug]'`")

    def look(name: str, process: psutil.Process) -> Iterator[dict[str, Any]]:
        command = [str(program), "dump", "--nonblocking", "--pid", str(process.pid)]
        try:
            said = subprocess.run(  # noqa: S603
                command,
                capture_output=True,
                text=True,
                cwd="/",
                env=environment(),
                timeout=STACK_S_MAX,
                check=False,
            )
            stack = said.stderr if said.returncode else said.stdout
        except (OSError, subprocess.TimeoutExpired) as reason:
            stack = str(reason)
        yield {"process": name, "pid": process.pid, "stack": stack.splitlines()}

    return _of_each(status, look)


def _py_spy() -> Path | None:
    """The program of the installed package; one of that name on the PATH may be anybody's."""
    try:
        files = distribution("py-spy").files or ()
    except PackageNotFoundError:
        return None
    return next((Path(str(each.locate())) for each in files if each.name == "py-spy"), None)


def _of_each(
    status: Status, look: Callable[[str, psutil.Process], Iterator[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Rows of each process. Skips processes that have just ended or belong to another user."""
    pids = {name: each.pid for name, each in status.processes.items() if each.pid}
    for name, pid in (pids | {"supervisor": status.supervisor_pid}).items():
        try:
            yield from list(look(name, psutil.Process(pid)))
        except psutil.Error:
            continue
