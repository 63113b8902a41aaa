"""Follows 'From loopback to a network' of docs/logins.md; a program for a network namespace.

The namespace has an address that other hosts could reach, and nothing else of this host's network.
Every block of the guide is run as it is written, but for the host's name, the data directory and
the passwords. Two lines are left to others: pip's, and that of Kafka's tools (tests/clients).
Prints what the guide's commands print.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from confluent_kafka import Consumer

import smq

GUIDE = Path(__file__).parents[2] / "docs" / "logins.md"
HEADING = "\n## From loopback to a network\n"
ADDRESS, PASSWORD = "10.99.0.1", "a-password"
SERVE = "smq serve --config smq.toml"  # In a sentence of the guide.
LEFT_OUT = ("pip install ", "kafka-console-consumer.sh ")
NONCE_IS_RIGHT = (2, 6, 1)  # Since this librdkafka, says the guide.
SECONDS_MAX = 60.0


class Blocks(NamedTuple):
    """The guide's blocks of code, in its order."""

    before: str
    settings: str
    properties: str
    as_admin: str
    as_alice: str
    in_python: str


def blocks(data_dir: Path) -> Blocks:
    """A block that is added to the guide does not fit, and is to be run here too."""
    section = GUIDE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    assert SERVE in section
    for word, meant in (("queue.example", ADDRESS), ("/var/lib/smq", str(data_dir))):
        section = section.replace(word, meant)
    found = re.findall(r"```(\w*)\n(.*?)```", section.replace("…", PASSWORD), re.DOTALL)
    assert [kind for kind, _ in found] == ["", "toml", "properties", "", "", "python"]
    return Blocks(*(text for _, text in found))


def commands(block: str) -> list[str]:
    lines = block.replace("\\\n", " ").splitlines()
    return [line for line in lines if not line.startswith(LEFT_OUT)]


def run(block: str) -> None:
    """Run a block's lines in one shell, which ends at the first that fails."""
    subprocess.run(
        ["bash", "-e", "-u", "-c", "\n".join(commands(block))],
        check=True,
        env=os.environ | {"SMQ_USER_PASSWORD": PASSWORD},  # Else it would be asked for.
        timeout=SECONDS_MAX,
    )


def main(home: Path) -> None:
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for line in ("ip link set lo up", f"ip address add {ADDRESS}/24 dev lo"):
        subprocess.run(line.split(), check=True)  # To SMQ it is an address like any other.
    os.chdir(home)
    guide = blocks(home / "data")
    run(guide.before)
    Path("smq.toml").write_text(guide.settings + f'runtime.dir = "{home}/run"\n')
    Path("admin.properties").write_text(guide.properties)
    alice = guide.properties.replace('username="admin"', 'username="alice"')
    Path("alice.properties").write_text(alice)
    with subprocess.Popen(shlex.split(SERVE)) as broker:
        try:
            wait_for(home / "data" / "status.json")
            run(guide.as_admin)
            read_in_python(guide.in_python)
            [line] = commands(guide.as_alice)
            read_by_librdkafka(shlex.split(line))
            read_by_kcat(shlex.split(line))
        finally:
            broker.terminate()


def wait_for(status: Path) -> None:
    deadline = monotonic() + SECONDS_MAX
    while True:
        try:
            with smq.connect(status.parent):
                return
        except smq.BrokerError:
            assert monotonic() < deadline, "the broker does not answer"
            sleep(0.1)


def read_in_python(block: str) -> None:
    """As alice, whom the rules allow to write and to read in her group."""
    with eval(block.partition("#")[0], {"smq": smq}) as client:
        with client.producer() as producer:
            for number in range(3):
                producer.send("orders", b"order %d" % number)
        with (
            client.consumer("orders", group="readers", start="earliest") as consumer,
            consumer.poll(SECONDS_MAX) as batch,
        ):
            values = batch.to_arrow()["value"].to_pylist()
            consumer.commit({("orders", 0): 1})
    sys.stdout.write(f"python read: {values[0]!r}\n")


def read_by_librdkafka(kcat: Sequence[str]) -> None:
    """By the names that the guide gives to kcat."""
    given = [word for flag, word in pairwise(kcat) if flag == "-X"]
    options = dict(word.split("=", 1) for word in given)
    options["bootstrap.servers"] = kcat[kcat.index("-b") + 1]
    group, topic = kcat[kcat.index("-G") + 1 :]
    consumer = Consumer(options | {"group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    sys.stdout.write(f"librdkafka read: {message.value()!r}\n")
    consumer.close()


def read_by_kcat(kcat: Sequence[str]) -> None:
    """Or be told what the guide says of a program with an older librdkafka."""
    if shutil.which("kcat") is None:
        return
    said = subprocess.run(["kcat", "-V"], check=True, capture_output=True, text=True).stdout
    [version] = re.findall(r"librdkafka ([\d.]+)", said)
    is_right = tuple(map(int, version.split("."))) >= NONCE_IS_RIGHT
    # It would wait for more records, and try to log in, until somebody stops it.
    until = "order 2" if is_right else "invalid credentials"
    with subprocess.Popen(
        ["timeout", str(SECONDS_MAX), "stdbuf", "--output=L", *kcat],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        assert child.stdout is not None
        found = any(until in line for line in iter(child.stdout.readline, ""))
        child.terminate()
    assert found, f"kcat has not said {until}"
    sys.stdout.write(f"kcat said: {until}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
