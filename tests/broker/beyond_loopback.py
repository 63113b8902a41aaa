"""Follows 'From loopback to a network' of docs/logins.md; a program for a network namespace.

The namespace has an address that other hosts could reach, and nothing else of this host's network.
Prints what a client has read.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

GUIDE = Path(__file__).parents[2] / "docs" / "logins.md"
ADDRESS, PASSWORD = "10.99.0.1", "a-password"
SECONDS_MAX = 60.0


def run(*command: str, **environment: str) -> None:
    subprocess.run(command, check=True, env=os.environ | environment, timeout=SECONDS_MAX)


def block(kind: str) -> str:
    """The guide's block of code of a kind."""
    found = re.search(rf"```{kind}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    return found[1].replace("queue.example", ADDRESS)


def main(home: Path) -> None:
    smq = [sys.executable, "-m", "smq.cli.main"]
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{ADDRESS}/24", "dev", "lo")  # To SMQ it is one like any other.
    os.chdir(home)
    run(*smq, "certs", "certs", "--host", ADDRESS)
    data = str(home / "data")
    run(*smq, "user", "add", "admin", "--data-dir", data, SMQ_USER_PASSWORD=PASSWORD)
    settings = block("toml").replace("/var/lib/smq", data) + f'runtime.dir = "{home}/run"\n'
    (home / "smq.toml").write_text(settings)
    with subprocess.Popen([*smq, "serve", "--config", "smq.toml"]) as broker:
        try:
            talk(client(home))
        finally:
            broker.terminate()


def client(home: Path) -> dict[str, Any]:
    """The guide's properties as librdkafka names them."""
    given = dict(line.split("=", 1) for line in block("properties").splitlines() if "=" in line)
    assert "ScramLoginModule" in given["sasl.jaas.config"]
    kept = ("bootstrap.servers", "security.protocol", "sasl.mechanism")
    return {name: given[name] for name in kept} | {
        "ssl.ca.location": str(home / given["ssl.truststore.location"]),
        "sasl.username": "admin",
        "sasl.password": PASSWORD,
        "log_level": "0",
    }


def talk(options: dict[str, Any]) -> None:
    deadline = monotonic() + SECONDS_MAX
    while True:
        try:
            AdminClient(options).list_topics(timeout=2)
            break
        except KafkaException:
            assert monotonic() < deadline, "the broker does not answer"
            sleep(0.2)
    producer = Producer(options)
    producer.produce("greetings", b"hello from beyond loopback")
    assert producer.flush(SECONDS_MAX) == 0
    consumer = Consumer(options | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["greetings"])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    sys.stdout.write(f"read: {message.value()!r}\n")
    consumer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
