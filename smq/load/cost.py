"""Measures a broker on this host: its processes, their memory and CPU time."""

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from shm.peer import ROOT
from smq.app.process.status import read_status
from smq.client.facts import broker_facts
from smq.client.kafka.cluster import addresses_of
from smq.client.locate import STATUS_NAME
from smq.load.logins import cluster_of, way_of
from smq.model.errors import BrokerError

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
RINGS = "memfd:smq-log"  # Shared memory of the logs, allocated from the start whatever the load.


def with_children(pids: Iterable[int]) -> set[int]:
    """Processes and all their descendants: a sealer's workers come and go."""
    found = set()
    for pid in pids:
        try:
            root = psutil.Process(pid)
            found |= {each.pid for each in (root, *root.children(recursive=True))}
        except psutil.NoSuchProcess:
            continue
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of processes so far, and of the children they have reaped."""
    total = 0
    for pid in with_children(pids):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / CLOCK_TICKS


def pss_mb(pids: Iterable[int], *, without: str = "") -> float:
    """Proportional set size of processes, in MB, except mappings whose name contains `without`."""
    total = 0
    for pid in with_children(pids):
        try:
            lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
        except OSError:  # It has ended, or is another user's.
            continue
        counted = True
        for line in lines:
            if line[0] in "0123456789abcdef" and "-" in line.partition(" ")[0]:
                counted = not (without and without in line)
            elif counted and line.startswith("Pss:"):
                total += int(line.split()[1])
    return total * 1024 / 1e6


def broker_pids(bootstrap: str) -> list[int]:
    """The broker's main processes on this host; empty if it runs elsewhere or is not visible."""
    data_dir = data_dir_of(bootstrap)
    found = read_status(data_dir) if data_dir else None
    if found is not None:
        return [found[0].supervisor_pid]
    ports = {port for _, port in addresses_of(way_of(bootstrap).bootstrap)}
    try:
        listening = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return []
    return sorted(
        {
            each.pid
            for each in listening
            if each.status == psutil.CONN_LISTEN and each.laddr.port in ports and each.pid
        }
    )


def data_dir_of(bootstrap: str) -> Path | None:
    """The data directory of an SMQ on this host; None for any other broker, and for one of another
    user but root: whose processes it names may be killed."""
    try:
        with cluster_of(bootstrap) as cluster:
            settings = cluster.retrying(lambda: broker_facts(cluster)).settings
    except BrokerError:
        return None
    data_dir = Path(settings.get("data.dir", ""))
    try:
        owner = (data_dir / STATUS_NAME).stat().st_uid
    except OSError:
        return None
    return data_dir if "data.dir" in settings and owner in {ROOT, os.getuid()} else None


def killer(bootstrap: str) -> Callable[[], str] | None:
    """Each call kills the next process of an SMQ on this host and returns its name; None elsewhere.

    The supervisor is spared: nothing would restart it.
    """
    data_dir = data_dir_of(bootstrap)
    if data_dir is None:
        return None
    last = ""

    def kill() -> str:
        nonlocal last
        found = read_status(data_dir)
        processes = {} if found is None else found[0].processes
        alive = sorted(name for name, process in processes.items() if process.pid)
        if not alive:
            return "nothing"
        # By name, not by number: the process killed before may still be down, or back.
        last = next((name for name in alive if name > last), alive[0])
        os.kill(processes[last].pid, signal.SIGKILL)
        return last

    return kill
