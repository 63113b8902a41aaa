"""`smq doctor`: reports problems in sentences, and writes an archive for support requests.

The archive has names of topics and groups and counts of clients, but no record data.
"""

import io
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.app.process.clock import monotonic_ns
from smq.cli.client import AsJson, refusal
from smq.cli.output import say
from smq.cli.serve import ConfigFile
from smq.cli.start import load_config

if TYPE_CHECKING:
    from shm.cluster import ClusterBlock
    from smq.app.process.status import Status
    from smq.cli.diagnosis import MachineFacts, ProcessLimits
    from smq.model.config import Config

JSON = 'JSON: {"findings": [SENTENCE], "archive": FILE or null}'
PACKAGES = ("smq-broker", "numpy", "numba", "llvmlite", "pyarrow", "psutil", "starlette", "uvicorn")
SYSTEM_FILES = ("/proc/meminfo", "/proc/loadavg", "/proc/mounts", "/proc/sys/kernel/osrelease")
PROCESS_FILES = ("status", "limits", "io", "wchan")
CGROUP = Path("/sys/fs/cgroup")
CLOCK_FILE = Path("/run/systemd/timesync/synchronized")


def doctor(
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", help="The broker's data directory.")
    ] = None,
    config: ConfigFile = None,
    *,
    archive: Annotated[
        Path | None,
        typer.Option("--archive", help="Write what was found to this .tar.gz, without records."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what looks wrong with the broker that serves a data directory."""
    from smq.app.front.insides import insides  # noqa: PLC0415  (as above)
    from smq.app.front.observer import Observer  # noqa: PLC0415  (as above)
    from smq.app.process.status import read_status  # noqa: PLC0415  (as above)
    from smq.cli.broker_facts import (  # noqa: PLC0415  (NumPy takes its time.)
        broker_facts,
        open_transactions,
    )
    from smq.cli.diagnosis import findings  # noqa: PLC0415  (as above)

    settings, _ = load_config(config, {"data.dir": data_dir} if data_dir else {})
    found = read_status(settings.data_dir)
    if found is None:
        raise refusal(
            f"no broker serves {settings.data_dir}; start one with `smq serve`, or name its "
            "directory with --data-dir"
        )
    status, block = found
    facts = Observer(settings.data_dir).look()
    limits, machine = _limits(status), _machine(settings)
    machine = machine._replace(clock_moved_s=_clock_moved_s(block))
    ring_bytes = status.ring_bytes * len(status.log_memories)
    transactions = open_transactions(settings.data_dir)
    sentences = findings(facts, limits, machine, ring_bytes, transactions)
    if archive is not None:
        members = {
            "findings.txt": "\n".join(sentences) + "\n",
            "broker.json": json.dumps(broker_facts(settings.data_dir, 0.5), indent=2),
            "facts.json": json.dumps(asdict(facts), indent=2),
            "slow.json": json.dumps(insides(settings.data_dir)["slow"](), indent=1),
            "machine.json": json.dumps(_versions() | machine._asdict(), indent=2),
            **_files(status),
        }
        _write(archive, members)
    if as_json:
        say(json.dumps({"findings": sentences, "archive": archive and str(archive)}))
        return
    for sentence in sentences:
        say(f"- {sentence}")
    count = f"{len(sentences)} finding{'' if len(sentences) == 1 else 's'}"
    say(count if sentences else "nothing looks wrong")
    if archive is not None:
        say(f"written to {archive}")


def _limits(status: "Status") -> "list[ProcessLimits]":
    import psutil  # noqa: PLC0415  (as above)

    from smq.cli.diagnosis import ProcessLimits  # noqa: PLC0415  (as above)

    limits = []
    for name, pid in _pids(status).items():
        try:
            process = psutil.Process(pid)
            most, _ = process.rlimit(psutil.RLIMIT_NOFILE)
            swapped = process.memory_full_info().swap
            limits.append(ProcessLimits(name, process.num_fds(), most, swapped))
        except psutil.Error:  # It has just ended, or belongs to another user.
            continue
    return limits


def _pids(status: "Status") -> dict[str, int]:
    pids = {name: each.pid for name, each in status.processes.items() if each.pid}
    return pids | {"supervisor": status.supervisor_pid}


def _clock_moved_s(block: "ClusterBlock") -> float:
    """How far the clock was set: a process's recorded start compared with the one reported now."""
    import psutil  # noqa: PLC0415  (as above)

    moved = 0.0
    for node in block.nodes():
        try:
            moved = psutil.Process(node.pid).create_time() - node.changed_ms / 1000
        except (psutil.Error, ValueError):  # It is down.
            continue
    return moved


def _filer_s(settings: "Config") -> float | None:
    """How long the filer takes to list objects; None if it fails."""
    from smq.filer.location import Location  # noqa: PLC0415  (as above)
    from smq.model.errors import StoreError  # noqa: PLC0415  (as above)

    began_ns = monotonic_ns()
    try:
        next(iter(Location.of(settings).open().list("topics/")), None)
    except StoreError:
        return None
    return (monotonic_ns() - began_ns) / 1e9


def _cgroup() -> tuple[int, int]:
    """The container's memory usage and limit; zeros if unknown."""
    try:
        used, most = (CGROUP / f"memory.{each}" for each in ("current", "max"))
        return int(used.read_text()), int(most.read_text())
    except (OSError, ValueError):  # No container, or no limit: "max".
        return 0, 0


def _machine(settings: "Config") -> "MachineFacts":
    import psutil  # noqa: PLC0415  (as above)

    from smq.cli.diagnosis import MachineFacts  # noqa: PLC0415  (as above)

    memory = psutil.virtual_memory()
    uses_timesync = CLOCK_FILE.parent.exists()
    return MachineFacts(
        memory.total,
        memory.available,
        _sync_s(settings.data_dir),
        CLOCK_FILE.exists() if uses_timesync else None,
        _filer_s(settings),
        0.0,
        *_cgroup(),
    )


def _sync_s(directory: Path) -> float:
    """How long the disk takes to sync a small temporary file."""
    try:
        fd = os.open(directory, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError:  # Another user's directory, or an unsupported file system.
        return 0.0
    try:
        os.write(fd, bytes(4096))
        began_ns = monotonic_ns()
        os.fdatasync(fd)
        return (monotonic_ns() - began_ns) / 1e9
    finally:
        os.close(fd)


def _versions() -> dict[str, Any]:
    import platform  # noqa: PLC0415  (other verbs start without these)
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return {"python": platform.python_version(), "platform": platform.platform(), "packages": found}


def _files(status: "Status") -> dict[str, str]:
    """The kernel's files on our processes, as far as this user may read them."""
    paths = {path.strip("/"): Path(path) for path in SYSTEM_FILES}
    for name, pid in _pids(status).items():
        paths |= {f"{name}/{each}": Path(f"/proc/{pid}/{each}") for each in PROCESS_FILES}
    texts = {}
    for name, path in paths.items():
        try:
            texts[name] = path.read_text()
        except OSError as reason:
            texts[name] = f"{reason}\n"
    return texts


def _write(path: Path, members: dict[str, str]) -> None:
    import tarfile  # noqa: PLC0415  (as above)

    def for_us(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600)  # It names topics, groups and clients.

    try:
        with (
            open(path, "wb", opener=for_us) as file,
            tarfile.open(fileobj=file, mode="w:gz") as tar,
        ):
            for name, text in members.items():
                data = text.encode()
                info = tarfile.TarInfo(f"smq-doctor/{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    except OSError as error:
        raise refusal(f"{path} cannot be written: {error.strerror or error}") from error
