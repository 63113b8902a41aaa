"""The cluster block: one writer, many readers, over forks and over descriptors."""

import mmap
import os
import tempfile

import pytest

from shm import cluster
from shm.cluster import ClusterBlock, LoginCounts, Node


def test_the_numbers_of_the_map_are_pinned() -> None:
    assert (cluster.HEADER_BYTES, cluster.NODE_BYTES) == (64, 192)
    assert cluster.CERTIFICATES_MAX == 8


def test_every_process_reads_the_nodes_that_the_supervisor_wrote() -> None:
    block = ClusterBlock.create(range(1, 3), supervisor_pid=7, started_ms=8)
    assert block.nodes() == [Node(1, 0, 0, 0, 0), Node(2, 0, 0, 0, 0)]
    node = Node(2, pid=99, port=9093, generation=3, changed_ms=5)
    block.set_node(node)
    reader = ClusterBlock.attach(block.fd)
    assert (reader.node_count, reader.supervisor_pid, reader.started_ms) == (2, 7, 8)
    assert reader.node(2) == node
    assert reader.generation(2) == 3
    assert reader.node(1).pid == 0


def test_the_first_node_may_have_any_id() -> None:
    block = ClusterBlock.create(range(2), 1, 1)
    block.set_node(Node(0, pid=9, port=9092, generation=3, changed_ms=5))
    reader = ClusterBlock.attach(block.fd)
    assert reader.node_ids == range(2)
    assert [node.generation for node in reader.nodes()] == [3, 0]
    with pytest.raises(AssertionError):
        reader.node(2)


def test_a_generation_never_goes_back() -> None:
    block = ClusterBlock.create(range(1, 2), 1, 1)
    block.set_node(Node(1, 1, 1, generation=2, changed_ms=1))
    with pytest.raises(AssertionError):
        block.set_node(Node(1, 1, 1, generation=1, changed_ms=1))


def test_a_reader_cannot_write() -> None:
    block = ClusterBlock.create(range(1, 2), 1, 1)
    with pytest.raises(TypeError):
        ClusterBlock.attach(block.fd).set_connections(1, 1)


def test_a_process_with_the_descriptor_can_neither_write_nor_truncate() -> None:
    block = ClusterBlock.create(range(1, 2), 1, 1)
    again = os.open(f"/proc/self/fd/{block.fd}", os.O_RDWR)
    size = os.fstat(again).st_size
    with pytest.raises(PermissionError):
        mmap.mmap(again, size)
    with pytest.raises(PermissionError):
        os.ftruncate(again, 0)
    os.close(again)


def test_a_fork_writes_into_the_same_words() -> None:
    block = ClusterBlock.create(range(1, 3), 1, 1)
    pid = os.fork()
    if pid == 0:
        block.set_connections(2, 41)
        block.set_sessions(2, 3)
        block.set_logins(2, LoginCounts(1, 2, 3, 4))
        block.set_certificates(2, [0, *range(5, 20)])
        os._exit(0)
    os.waitpid(pid, 0)
    assert (block.connections(1), block.connections(2)) == (0, 41)
    assert (block.sessions(1), block.sessions(2)) == (0, 3)
    assert (block.logins(1), block.logins(2)) == (LoginCounts(), LoginCounts(1, 2, 3, 4))
    assert block.certificates(1) == [0] * 8
    assert block.certificates(2) == [0, *range(5, 12)], "what has no room is not told"
    assert block.node(1) == Node(1, 0, 0, 0, 0)


def test_a_node_that_does_not_exist_is_our_bug() -> None:
    block = ClusterBlock.create(range(1, 2), 1, 1)
    for node_id in (0, 2):
        with pytest.raises(AssertionError):
            block.node(node_id)


def test_something_else_is_not_taken_for_a_cluster_block() -> None:
    with tempfile.TemporaryFile() as other:
        with pytest.raises(ValueError, match="not a cluster block"):
            ClusterBlock.attach(other.fileno())
        other.write(bytes(4096))
        other.flush()
        with pytest.raises(ValueError, match="not a cluster block of this version"):
            ClusterBlock.attach(other.fileno())
