"""`python -m bench.copy_topic [kafka|smq] [MB]`: how fast `smq copy` takes a topic into SMQ.

The source is an Apache Kafka or an SMQ on this host, with records of 1 kB in batches of 640 KiB.
Prints one line of JSON: MB/s, as `smq copy` itself counts bytes and seconds, beside the rate at
which the disk of this machine takes the same bytes.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smq.client.client import connect
from smq.testing.kafka import Kafka
from smq.testing.smq_broker import SmqCommand

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

RECORD_BYTES = 1000
ROWS = 10_000
PARTITIONS = 4
MEGABYTES = 1000


def main() -> None:
    """Measure once."""
    kind = sys.argv[1] if len(sys.argv) > 1 else "smq"
    megabytes = int(sys.argv[2]) if len(sys.argv) > 2 else MEGABYTES
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        source: AbstractContextManager[Any] = (
            Kafka(directory / "kafka") if kind == "kafka" else SmqCommand(directory / "source")
        )
        with source as there, SmqCommand(directory / "here") as here:
            fill(there.bootstrap, megabytes)
            facts = copy(there.bootstrap, here.bootstrap)
        rate = facts["bytes"] / facts["seconds"] / 1e6
        result = {"source": kind, "copy_mb_s": round(rate), "disk_mb_s": round(disk(directory))}
        print(json.dumps(result | {"records": facts["records"]}))


def fill(bootstrap: str, megabytes: int) -> None:
    """Make a topic with this many megabytes of random bytes."""
    values = np.random.default_rng(1).bytes(RECORD_BYTES * ROWS)
    batch = [values[at : at + RECORD_BYTES] for at in range(0, len(values), RECORD_BYTES)]
    partitions = np.arange(ROWS) % PARTITIONS
    with connect(bootstrap) as client, client.producer() as producer:
        client.create_topic("copied", PARTITIONS)
        for _ in range(megabytes * 1_000_000 // len(values)):
            producer.send_batch("copied", {"value": batch, "partition": partitions})


def copy(source: str, destination: str) -> dict[str, Any]:
    """What `smq copy --json` prints."""
    command = [sys.executable, "-m", "smq.cli.main", "copy", "copied", "copied", "--json"]
    options = ["--bootstrap", source, "--to", destination]
    done = subprocess.run([*command, *options], capture_output=True, check=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def disk(directory: Path, megabytes: int = 500) -> float:
    """Megabytes a second that a file takes, written and synced."""
    data, began = os.urandom(1_000_000), time.monotonic()
    with (directory / "probe").open("wb") as file:
        for _ in range(megabytes):
            file.write(data)
        os.fsync(file.fileno())
    return megabytes / (time.monotonic() - began)


if __name__ == "__main__":
    main()
