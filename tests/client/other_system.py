"""A program on a system that lacks Linux's features, as far as Linux can pretend to be it.

    python -m tests.client.other_system darwin|win32|riscv64 HOST:PORT

It imports the libraries first, takes away what the system lacks, and only then imports SMQ:
whatever SMQ uses of it raises an AttributeError or ImportError. It cannot show how the system
itself behaves.
"""

import asyncio
import ctypes
import importlib
import os
import platform
import select
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

LIBRARIES = [
    *("numpy.ma", "numba", "numba.core.caching", "pyarrow.ipc", "pyarrow.compute", "psutil"),
    *("cramjam", "lz4.frame", "typer.rich_utils", "rich.console", "http.client", "multiprocessing"),
]
RECORDS = 200

LINUX_ONLY = {
    os: ("eventfd", "eventfd_read", "eventfd_write", "memfd_create", "sched_getaffinity"),
    select: ("epoll",),
    socket: ("SOCK_CLOEXEC", "SOCK_NONBLOCK", "MSG_CMSG_CLOEXEC", "SO_PEERCRED"),
}
NOT_ON_WINDOWS = {
    os: ("register_at_fork", "fork", "uname", "getuid", "O_CLOEXEC", "O_DIRECTORY", "statvfs"),
    select: ("poll", "POLLIN", "POLLOUT"),
    socket: ("AF_UNIX", "MSG_DONTWAIT", "recv_fds"),
}
MODULES_NOT_ON_WINDOWS = ("fcntl", "resource", "termios", "pwd", "grp")


def become(system: str) -> None:
    """Take away what a system lacks."""
    for name in LIBRARIES:
        importlib.import_module(name)
    platform.uname()  # Is kept, for libraries that ask again.
    if system == "riscv64":
        platform.machine = lambda: system
        return
    for module, names in LINUX_ONLY.items():
        take_away(module, names)
    sys.platform = system
    if system == "win32":
        for module, names in NOT_ON_WINDOWS.items():
            take_away(module, names)
        for each in MODULES_NOT_ON_WINDOWS:
            sys.modules[each] = None  # type: ignore[assignment]
        ctypes.CDLL = no_program_to_load  # type: ignore[assignment, misc]
        socket.socketpair = pair_over_tcp  # type: ignore[assignment]
        platform.machine = lambda: "AMD64"
    else:
        take_away(importlib.import_module("fcntl"), ("F_ADD_SEALS", "F_SEAL_SEAL"))


def take_away(module: object, names: tuple[str, ...]) -> None:
    for name in names:
        delattr(module, name)


def no_program_to_load(*_: object, **__: object) -> None:
    raise TypeError("LoadLibrary() argument 1 must be str, not None")


def pair_over_tcp() -> tuple[socket.socket, socket.socket]:
    """What socketpair is on Windows."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        return one, listener.accept()[0]


class LoopWithoutReaders(asyncio.SelectorEventLoop):
    """As Windows' usual event loop, it can watch no descriptors."""

    def add_reader(self, *_: object) -> None:
        raise NotImplementedError


# --- what works ----------------------------------------------------------------------------------


def use_the_sdk(system: str, address: str) -> None:
    import smq  # noqa: PLC0415  (Not before the system is another one.)

    with pytest.raises(
        smq.BrokerUnavailable, match="shared memory need Linux on x86_64 or aarch64"
    ):
        smq.connect(address, transport="shared memory")
    with smq.connect(address) as client:
        assert client.transport == "kafka"
        client.create_topic(f"{system}-in", 2)
        client.create_topic(f"{system}-out", 1)
        produce(client, f"{system}-in")
        consume(client, f"{system}-in", f"{system}-group")
        transact(client, f"{system}-out")
        refer(client, f"{system}-in")
    loop = LoopWithoutReaders if system == "win32" else asyncio.SelectorEventLoop
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(use_asyncio(address, f"{system}-async"))


def produce(client: Any, topic: str) -> None:
    import pyarrow as pa  # noqa: PLC0415

    rows = [b"%d" % i for i in range(RECORDS)]
    with client.producer(compression="lz4") as producer:
        sent = [producer.send(topic, row, key=row) for row in rows[: RECORDS // 2]]
        producer.send_batch(topic, pa.table({"key": rows, "value": rows}).slice(RECORDS // 2))
        producer.flush()
        assert len({(each.result().partition, each.result().offset) for each in sent}) == len(sent)


def consume(client: Any, topic: str, group: str) -> None:
    wanted = sorted(b"%d" % i for i in range(RECORDS))
    found: list[bytes] = []
    with client.consumer(topic, group=group, start="earliest") as consumer:
        while len(found) < RECORDS:
            with consumer.poll(timeout_s=30) as batch:
                table = batch.to_arrow()
                assert len(table) == len(batch)
                found += table["value"].to_pylist()
        assert consumer.transport == "kafka"
        consumer.commit()
        assert sum(consumer.committed().values()) == RECORDS
    assert sorted(found) == wanted
    with (
        client.consumer(topic, group=group, start="earliest") as consumer,
        consumer.poll(timeout_s=0.2) as batch,  # Nothing arrives: it waits.
    ):
        assert len(batch) == 0


def transact(client: Any, topic: str) -> None:
    with client.producer(transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"committed")
        with suppress(KeyError), producer.transaction():
            producer.send(topic, b"aborted")
            producer.flush()
            raise KeyError
        with producer.transaction():
            producer.send(topic, b"also committed")
    found: list[bytes] = []
    with client.consumer(topic, start="earliest", isolation_level="read_committed") as consumer:
        while len(found) < 2:
            with consumer.poll(timeout_s=30) as batch:
                found += [bytes(record.value) for record in batch]
    assert found == [b"committed", b"also committed"]


def refer(client: Any, topic: str) -> None:
    """A payload travels over HTTP: no file of the broker's host is opened."""
    reference = client.upload(topic, b"payload" * 1000)
    with client.consumer(topic) as consumer, client.producer() as producer:
        consumer.seek_to_end()
        producer.send_handle(topic, reference).result(30)
        with consumer.poll(timeout_s=30) as batch:
            (record,) = batch
            assert bytes(record.payload.view()) == b"payload" * 1000


async def use_asyncio(address: str, topic: str) -> None:
    import smq  # noqa: PLC0415

    async with smq.connect_async(address) as client:
        await client.create_topic(topic, 1)
        async with (
            client.consumer(topic, start="earliest") as consumer,
            client.producer() as producer,
        ):
            async with await consumer.poll(timeout_s=0.1) as batch:
                assert len(batch) == 0
            polling = asyncio.create_task(consumer.poll(timeout_s=30))
            await asyncio.sleep(0)
            await (await producer.send(topic, b"value"))
            async with await polling as batch:
                assert [bytes(record.value or b"") for record in batch] == [b"value"]


# --- what does not -------------------------------------------------------------------------------

NEED_A_BROKERS_HOST = (
    *(["serve"], ["status"], ["doctor"], ["sql", "select 1"], ["tables", "list"]),
    *(["snapshot", "there"], ["restore", "there"], ["config", "history"]),
    ["bench", "run", "backlog"],
)


def use_the_command_line(system: str, address: str) -> None:
    """Verbs that ask a broker work; those that need its host refuse with a sentence."""
    from smq.cli.verbs import app  # noqa: PLC0415

    def run(*words: str) -> None:
        app(list(words), standalone_mode=False)

    asking = ("--bootstrap", address)
    run("topic", "create", f"{system}-lines", *asking)
    run("produce", f"{system}-lines", __file__, *asking)
    run("consume", f"{system}-lines", *asking)
    run("topic", "list", *asking)
    run("topic", "describe", f"{system}-lines", *asking)
    run("config", "list", "--topic", f"{system}-lines", *asking)
    run("group", "list", *asking)
    for words in NEED_A_BROKERS_HOST:
        with pytest.raises(SystemExit, match=r"^smq: SMQ's broker and shared memory need Linux"):
            run(*words)


def check_kernels() -> None:
    """No kernel that ran calls a function of the system's C library."""
    kernels = [
        each
        for name, module in list(sys.modules.items())
        if name.startswith("shm.kernels")
        for each in list(vars(module).values())
        if getattr(each, "overloads", None)
    ]
    assert {"crc32c", "scan_batches"} <= {each.__name__ for each in kernels}
    seen: set[int] = set()
    for each in kernels:
        called = calls_of(each.py_func, seen)
        assert not called, f"{each.__name__} calls {called}"


def calls_of(function: Callable[..., Any], seen: set[int]) -> set[str]:
    from shm.kernels.base.later import MadeLater  # noqa: PLC0415

    if id(function) in seen:
        return set()
    seen.add(id(function))
    found: set[str] = set()
    for name in function.__code__.co_names:
        value: Any = function.__globals__.get(name)
        if isinstance(value, MadeLater) and hasattr(value.made(), "symbol"):
            found.add(value.made().symbol)
        elif hasattr(value, "py_func"):
            found |= calls_of(value.py_func, seen)
    return found


def main() -> None:
    system, address = sys.argv[1:]
    become(system)
    use_the_sdk(system, address)
    use_the_command_line(system, address)
    check_kernels()
    print("done")  # noqa: T201


if __name__ == "__main__":
    main()
