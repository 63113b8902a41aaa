"""TLS, SMQ beside Apache Kafka in one run: `python -m bench.tls`.

librdkafka (C, bench/clients/librdkafka) produces and consumes records of 1 KiB, plain and over TLS;
then clients do nothing but shake hands, with and without a certificate. Each step is taken of one
broker, then of the other, which is stopped meanwhile, once without counting. The medians of the
rounds are printed: MB/s, handshakes a second, and both per second of the broker's CPU time.
`--quick` is a look, `--only WORDS` takes some of the lines, `--without-kafka` compares with nobody.
"""

import argparse
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median

from bench.clients.programs import librdkafka, raw
from bench.machine import stopped
from bench.measures.lines import Figures, Line, Measure, topic
from bench.report import Row, comparison_rows, table
from smq.app.process.clock import wall_ms
from smq.cli.key_pairs import make_pair
from smq.load.cost import cpu_seconds
from smq.testing.kafka import Kafka
from smq.testing.processes import Broker
from smq.testing.smq_broker import SmqCommand

MB = 1e6
BATCH_BYTES = 1_000_000
AT_ONCE = 50  # Handshakes of each of two clients.
RECEIVE_BYTES = 65536
BIG = {"batch_size": BATCH_BYTES, "batch_num_messages": 100_000, "linger_ms": 5}
SMALL = {"batch_size": 16384, "linger_ms": 5}
LISTENERS = {"TLS": "SSL", "MUTUAL": "SSL"}  # The second wants certificates of clients.


class Bench:
    """Both brokers, their keys, and how much work is done."""

    def __init__(self, home: Path, scale: float) -> None:
        self.home, self.scale = home, scale
        now_wall_ms = wall_ms()
        authority = make_pair("bench", 1, now_wall_ms)
        (home / "ca.pem").write_bytes(authority.certificate)
        for name, hosts in (("broker", ["localhost", "127.0.0.1"]), ("client", [])):
            pair = make_pair(name, 1, now_wall_ms, authority, hosts)
            (home / f"{name}.pem").write_bytes(b"".join((*pair, authority.certificate)))
        self.keys = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(home / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(home / "ca.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
        }

    def smq(self) -> Broker:
        """Ours, with one shard."""
        return SmqCommand(self.home / "smq", self.keys, listeners=LISTENERS)

    def kafka(self) -> Broker:
        """The other."""
        waits = {"broker.session.timeout.ms": "3600000"}  # It stands still for minutes.
        return Kafka(self.home / "kafka", self.keys | waits, listeners=LISTENERS)

    def _reach(self, broker: Broker, *, is_plain: bool) -> tuple[str, dict[str, object]]:
        """A bootstrap address, and what a client is told of TLS."""
        if is_plain:
            return f"127.0.0.1:{broker.port}", {}
        trusted = {"security_protocol": "SSL", "ssl_ca_location": self.home / "ca.pem"}
        return f"127.0.0.1:{broker.port_of('TLS')}", trusted

    def produce(
        self, records: int, options: Mapping[str, object], *, is_plain: bool = False
    ) -> Callable[[Broker], Figures]:
        """Produce 1 KiB records, acks=all."""

        def run(broker: Broker) -> Figures:
            address, trusted = self._reach(broker, is_plain=is_plain)
            with topic(broker) as name, Cost(broker) as cost:
                figures = librdkafka(
                    address, "produce", topic=name, records=records, record_bytes=1024,
                    request_required_acks=-1, **trusted, **options,
                )  # fmt: skip
                return figures | cost.each(figures["bytes"] / MB)

        return run

    def consume(
        self, batch_bytes: int, records: int, *, is_plain: bool = False
    ) -> Callable[[Broker], Figures]:
        """Read hot records of 1 KiB."""

        def run(broker: Broker) -> Figures:
            address, trusted = self._reach(broker, is_plain=is_plain)
            with topic(broker) as name:
                total = records * 1024 + 2 * batch_bytes
                raw(broker.port, "produce", topic=name, batch_bytes=batch_bytes, bytes=total)
                with Cost(broker) as cost:
                    figures = librdkafka(address, "consume", topic=name, records=records, **trusted)
                    return figures | cost.each(figures["bytes"] / MB)

        return run

    def shake_hands(self, *, mutual: bool) -> Callable[[Broker], Figures]:
        """Connect, shake hands, leave: two clients, for whom it costs more than for the broker."""

        def run(broker: Broker) -> Figures:
            count = int(2000 * self.scale) // AT_ONCE * AT_ONCE
            port = broker.port_of("MUTUAL" if mutual else "TLS")
            client = [sys.executable, __file__, "client", str(port), str(count), str(self.home)]
            with Cost(broker) as cost:
                began = time.perf_counter()
                clients = [subprocess.Popen([*client, str(int(mutual))]) for _ in range(2)]
                failed = [each.wait() for each in clients]
                seconds = time.perf_counter() - began
                assert failed == [0, 0], "a handshake has failed"
                return {"a_second": 2 * count / seconds} | cost.each(2 * count)

        return run

    def measures(self) -> list[Measure]:
        """All lines."""
        most = int(1_000_000 * self.scale)
        reads = int(190_000 * min(1.0, self.scale))
        mb_s, each = Line("MB/s", "mb_s", "≥ 1.3"), Line("MB a CPU-second of the broker", "each")
        hands = Line("a CPU-second of the broker", "each")
        found = [
            Measure(f"produce, {batch} batches, {way}", run, (mb_s, each))
            for batch, options, count in (("1 MB", BIG, most), ("16 KiB", SMALL, most // 4))
            for way, run in (
                ("plain", self.produce(count, options, is_plain=True)),
                ("TLS", self.produce(count, options)),
            )
        ]
        found += [
            Measure(f"consume, {words} batches, {way}", run, (mb_s, each))
            for words, batch_bytes in (("1 MB", BATCH_BYTES), ("16 KiB", 16384))
            for way, run in (
                ("plain", self.consume(batch_bytes, reads, is_plain=True)),
                ("TLS", self.consume(batch_bytes, reads)),
            )
        ]
        for words, mutual, target in (("", False, "2,000"), (" with certificates", True, "1,000")):
            lines = (Line("a second", "a_second"), hands._replace(target=f"SMQ ≥ {target}"))
            found.append(Measure(f"handshakes{words}", self.shake_hands(mutual=mutual), lines))
        return found


class Cost:
    """The broker's CPU time of a block."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __enter__(self) -> "Cost":
        self._before = cpu_seconds(self._broker.pids())
        return self

    def __exit__(self, *_: object) -> None:
        return

    def each(self, amount: float) -> Figures:
        """How much was done in a second of it."""
        return {"each": amount / (cpu_seconds(self._broker.pids()) - self._before)}


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="lines whose name has these words")
    parser.add_argument("--without-kafka", action="store_true")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    with tempfile.TemporaryDirectory(prefix="smq-bench-") as name, ExitStack() as stack:
        bench = Bench(Path(name), 0.1 if options.quick else 1.0)
        brokers: list[Broker] = [stack.enter_context(bench.smq())]
        if not options.without_kafka:
            brokers.append(stack.enter_context(bench.kafka()))
        rows: list[Row] = []
        for measure in bench.measures():
            if options.only in measure.name:
                rows += comparison_rows(measure, _medians(measure, brokers, rounds))
                print(table(rows[-len(measure.lines) :], heading=False), flush=True)
        print("\n" + table(rows))


def _medians(measure: Measure, brokers: list[Broker], rounds: int) -> dict[str, Figures]:
    taken: dict[str, list[Figures]] = {broker.name: [] for broker in brokers}
    for i in range(1 + rounds):
        for broker in brokers:
            others = [pid for other in brokers if other is not broker for pid in other.pids()]
            os.sync()
            with stopped(others):
                figures = measure.run(broker)
            if i:  # The first is to warm up.
                taken[broker.name].append(figures)
    return {
        name: {key: median(each[key] for each in runs) for key in runs[0]}
        for name, runs in taken.items()
    }


class Knocker:
    """One connection of a client: its hello is sent, then the rest of its handshake."""

    def __init__(self, context: ssl.SSLContext, port: int) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        self._socket = socket.create_connection(("127.0.0.1", port))
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self._socket.sendall(self._out.read())

    def finish(self) -> None:
        """The broker's part has come, or comes."""
        while True:
            data = self._socket.recv(RECEIVE_BYTES)
            assert data, "the broker has left"
            self._in.write(data)
            with suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
                self._socket.sendall(self._out.read())
                return

    def leave(self) -> None:
        """The broker sees it, once it has taken what was sent before."""
        self._socket.close()


def client(port: int, count: int, home: Path, *, mutual: bool) -> None:
    """Shake hands so many times, with some connections at once."""
    context = ssl.create_default_context(cafile=str(home / "ca.pem"))
    context.set_ecdh_curve("prime256v1")
    if mutual:
        context.load_cert_chain(home / "client.pem")
    for _ in range(count // AT_ONCE):
        knockers = [Knocker(context, port) for _ in range(AT_ONCE)]
        for each in knockers:
            each.finish()
        for each in knockers:
            each.leave()


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        client(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), mutual=sys.argv[5] == "1")
    else:
        main()
