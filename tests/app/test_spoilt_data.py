"""A data directory that an earlier version has spoilt starts, and is readable in little memory.

recorded/made_by_56bb9b9c.tar.xz is a data directory of the commit that it names, killed when the
log had nothing left of these topics, one partition each:

    wide   a record; an aborted transaction of two batches of 99 bytes that claim 2**31 - 1 records
           each, sealed alone; a record. That version could read the first record only.
    small  four zstd batches of 60 records: key k<number>, a value of 1 MiB of zeros, a header whose
           key has 1,000 bytes. They are one row group of 240 MiB.
    far    a record, a zstd batch that inflates to 100 MiB, a record
"""

import re
import tarfile
from itertools import islice
from pathlib import Path

import pytest

from smq.testing.smq_broker import SmqBroker
from tests.app.test_older_and_newer import SETTINGS, texts

RECORDED = Path(__file__).parent / "recorded" / "made_by_56bb9b9c.tar.xz"
MiB = 1024 * 1024
WORKER_BYTES_MAX = 512 * MiB
FAR = 2**32


def worker_peaks(broker: SmqBroker) -> dict[str, int]:
    """The most memory that each worker of the sealer has had so far."""
    sealer = broker.status().processes["sealer"].pid
    peaks = {}
    for pid in Path(f"/proc/{sealer}/task/{sealer}/children").read_text().split():
        said = Path(f"/proc/{pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", said)
        assert found is not None
        peaks[Path(f"/proc/{pid}/comm").read_text().strip()] = int(found[1]) * 1024
    return peaks


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_spoilt_data_of_an_earlier_version_is_read_in_little_memory(tmp_path: Path) -> None:
    """Data faults 12, 16 and 18, in a data directory of a version that had them."""
    (tmp_path / "data").mkdir()
    with tarfile.open(RECORDED) as archive:
        archive.extractall(tmp_path / "data", filter="data")
    with SmqBroker(tmp_path, SETTINGS) as broker, broker.connect() as client:
        assert texts(client, "wide", 2) == {(0, 0): b"before", (0, FAR): b"after"}
        with client.consumer(["far"], start="earliest") as consumer:
            sizes = {each.offset: len(each.value or b"") for each in islice(consumer, 3)}
        assert sizes == {0: 6, 1: 100 * MiB, 2: 5}
        with client.consumer(["small"], start="earliest") as consumer:
            seen = 0
            while seen < 240:
                with consumer.poll(timeout_s=60) as batch:
                    assert batch, f"only {seen} of 240 records came"
                    for record in batch:
                        assert (record.offset, record.key) == (seen, b"k%d" % seen)
                        assert record.value is not None
                        assert len(record.value) == MiB
                        assert record.headers == (("h" * 1000, b"v"),)
                        seen += 1
        peaks = worker_peaks(broker)
        assert any(name.startswith("smq-cold") for name in peaks)
        assert max(peaks.values()) < WORKER_BYTES_MAX, peaks
