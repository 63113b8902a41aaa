"""The status file: found while its broker runs, and never believed afterwards."""

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from shm.cluster import ClusterBlock
from smq.app.process.status import (
    ProcessStatus,
    Status,
    attach_logs,
    attach_timings,
    read_status,
)


def status_of(block: ClusterBlock, processes: Mapping[str, ProcessStatus]) -> Status:
    return Status(
        cluster_id="id",
        bootstrap="127.0.0.1:9092",
        supervisor_pid=os.getpid(),
        started_ms=5,
        cluster_block=f"/proc/{os.getpid()}/fd/{block.fd}",
        log_memories=["/proc/1/fd/3"],
        ring_bytes=2,
        wal_segment_bytes=1,
        filer_root="/filer",
        http="",
        processes=processes,
    )


def test_a_written_status_is_read_with_its_cluster_block(tmp_path: Path) -> None:
    block = ClusterBlock.create(range(1, 2), os.getpid(), 5)
    block.set_connections(1, 3)
    status = status_of(block, {"sealer": ProcessStatus(pid=7, ready=True, restarts=1)})
    status.write(tmp_path)
    found = read_status(tmp_path)
    assert found
    assert found[0] == status
    assert found[1].connections(1) == 3


def test_a_status_is_its_users_alone_under_each_umask(tmp_path: Path) -> None:
    block = ClusterBlock.create(range(1, 2), os.getpid(), 5)
    left = tmp_path / "status.json.new"
    left.touch()
    left.chmod(0o666)
    umask = os.umask(0o027)  # With filer.mode=0750.
    try:
        status_of(block, {}).write(tmp_path)
    finally:
        os.umask(umask)
    [written] = tmp_path.iterdir()
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


def test_a_broker_is_ready_when_all_of_it_is() -> None:
    block = ClusterBlock.create(range(1, 2), os.getpid(), 5)
    processes = {"a": ProcessStatus(pid=1, ready=True), "b": ProcessStatus(pid=2)}
    assert not status_of(block, processes).ready
    assert status_of(block, processes | {"b": ProcessStatus(pid=2, ready=True)}).ready


def test_memory_is_a_process_s_and_nothing_else(tmp_path: Path) -> None:
    """Door fault 2: a status file from elsewhere may name a pipe, or any file."""
    block = ClusterBlock.create(range(1, 2), os.getpid(), 5)
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero", "/proc/self/fd/../fd/0", "/etc/hostname"):
        replace(status_of(block, {}), cluster_block=path).write(tmp_path)
        assert read_status(tmp_path) is None
        assert attach_logs(replace(status_of(block, {}), log_memories=[path])) == []
        assert attach_timings(replace(status_of(block, {}), timings=path)) is None


def test_no_file_means_no_broker(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    (tmp_path / "file").touch()
    assert read_status(tmp_path / "file") is None


@pytest.mark.parametrize("what", ["gone", "other memory", "another supervisor"])
def test_a_file_of_a_killed_broker_is_not_believed(tmp_path: Path, what: str) -> None:
    block = ClusterBlock.create(range(1, 2), 1 if what == "another supervisor" else os.getpid(), 5)
    other = os.memfd_create("other")  # The descriptor's number is another program's by now.
    status = status_of(block, {})
    if what == "other memory":
        status = replace(status, cluster_block=f"/proc/{os.getpid()}/fd/{other}")
    status.write(tmp_path)
    if what == "gone":
        os.close(block.fd)
    assert read_status(tmp_path) is None
    os.close(other)
