"""How long a snapshot takes while its broker is loaded: `python -m bench.snapshot [GiB] [folder]`.

Fills a topic with unsealed records, keeps producing, and takes two snapshots: beside
the data (hard links), and on another file system, /dev/shm, if that has room (copies). The first is
then restored. Prints seconds, and the rate of producing before and meanwhile. The disk's own speed
for the same bytes stands beside: a snapshot is on the disk when it is done.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from smq.client.client import connect
from smq.testing.smq_broker import SmqCommand

MiB, GiB = 1 << 20, 1 << 30
VALUE = os.urandom(10_000)
ROUND = 200
SMQ = [sys.executable, "-m", "smq.cli.main"]


class Producing:
    """A thread that sends; how many bytes were acked, and when it has acked enough."""

    def __init__(self, bootstrap: str) -> None:
        self.bytes, self._stop, self._bootstrap = 0, False, bootstrap
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with connect(self._bootstrap) as client, client.producer() as producer:
            while not self._stop:
                sent = [producer.send("t", VALUE, partition=i % 4) for i in range(ROUND)]
                for each in sent:
                    each.result(60)
                self.bytes += ROUND * len(VALUE)

    def stop(self) -> None:
        """Wait for the last ack."""
        self._stop = True
        self._thread.join()


def timed(*arguments: object) -> float:
    """Seconds that a verb takes, the start of Python included."""
    began = time.perf_counter()
    subprocess.run([*SMQ, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def disk_seconds(folder: Path, size: int) -> float:
    """The time to write and sync this many bytes."""
    began = time.perf_counter()
    with (folder / "plain").open("wb") as file:
        for _ in range(size // len(VALUE)):
            file.write(VALUE)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.perf_counter() - began
    (folder / "plain").unlink()
    return seconds


def main() -> None:
    """Measure once."""
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else 2) * GiB)
    home = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory(dir=home) as name:
        folder = Path(name)
        print(f"disk: {size / GiB:g} GiB written and synced in {disk_seconds(folder, size):.1f} s")
        settings = {"wal.bytes.max": str(4 * size), "seal.bytes": str(4 * size), "shards": "2"}
        with SmqCommand(folder / "a", settings) as broker:
            with connect(broker.bootstrap) as client:
                client.create_topic("t", 4)
            producing = Producing(broker.bootstrap)
            began = time.perf_counter()
            while producing.bytes < size:
                time.sleep(0.01)
            before = producing.bytes / (time.perf_counter() - began)
            print(f"producing: {before / MiB:.0f} MiB/s")
            where = ("--data-dir", broker.data_dir)
            shared = Path("/dev/shm")  # noqa: S108  (another file system)
            places = {"links": folder / "s"}
            if shutil.disk_usage(shared).free > 2 * size:
                places["copies, /dev/shm"] = Path(tempfile.mkdtemp(dir=shared)) / "s"
            for kind, place in places.items():
                acked = producing.bytes
                seconds = timed("snapshot", place, *where)
                rate = (producing.bytes - acked) / seconds
                print(f"snapshot, {kind}: {seconds:.1f} s; producing {rate / MiB:.0f} MiB/s")
                if kind != "links":
                    shutil.rmtree(place.parent)
            producing.stop()
        seconds = timed("restore", folder / "s", "--data-dir", folder / "b")
        print(f"restore: {seconds:.1f} s")


if __name__ == "__main__":
    main()
