"""What other users of the host can read of a broker's records."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.client.kafka.cluster import Cluster
from smq.testing.smq_broker import SmqBroker
from smq.wire.records import Record, write_batch
from tests.another_user import needs_root, read_by, result_as
from tests.app.http_client import request
from tests.broker.one_topic import SETTINGS, OneTopic

pytestmark = [pytest.mark.timeout(120), needs_root]

STRANGER, GROUP = 65_512, 65_511


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A broker's directory that exists, and that all users may enter."""
    with tempfile.TemporaryDirectory(prefix="smq-") as name:
        (Path(name) / "data").mkdir()
        for each in (Path(name), Path(name) / "data"):
            each.chmod(0o755)
        yield Path(name)


def keep_records_everywhere(broker: SmqBroker) -> None:
    """In the log, sealed, in the cache of the sealer's readers, and uploaded."""
    with Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "secrets")
        header = ((b"\xff", b""),)  # Such a record is sealed as it was sent.
        for headers in ((), header):
            record = Record(0, 1, None, b"pin=4711", headers)
            end = topic.append(write_batch([record])) + 1
        topic.seal_and_recycle(end)
        assert len(topic.records(end)) == end
    with request(broker, "PUT", "/filer/uploads/pin", b"pin=4711") as response:
        assert response.status < 300


def test_other_users_read_nothing_of_a_data_directory_that_they_may_enter(
    open_directory: Path,
) -> None:
    """Door fault 8."""
    before = os.umask(0o022)
    try:
        with SmqBroker(open_directory, SETTINGS | {"http.port": "0"}) as broker:
            keep_records_everywhere(broker)
            assert read_by(STRANGER, STRANGER, broker.data_dir) == set()
    finally:
        os.umask(before)


def test_a_group_reads_sealed_segments_on_request(open_directory: Path) -> None:
    """Door fault 8."""
    data_dir = open_directory / "data"
    os.chown(data_dir, -1, GROUP)
    data_dir.chmod(0o2755)
    with SmqBroker(open_directory, SETTINGS | {"http.port": "0", "filer.mode": "0750"}) as broker:
        keep_records_everywhere(broker)
        found = read_by(STRANGER, GROUP, data_dir)
        without_records = {"clock.json", "status.json"}
        assert {name.partition("/")[0] for name in found - without_records} == {"filer"}
        assert any(name.endswith(".parquet") for name in found)
        assert read_by(STRANGER, STRANGER, data_dir) == set()
        segments = [*(data_dir / "filer" / "topics").rglob("*.parquet")]
        assert result_as(GROUP, lambda: ends_of(segments)) == ["PAR1"] * len(segments)
        assert "PermissionError" in result_as(STRANGER, lambda: ends_of(segments))


def ends_of(segments: list[Path]) -> list[str]:
    """What each file ends with, as a reader of Parquet looks at it first."""
    return [each.read_bytes()[-4:].decode() for each in segments]


def test_other_users_read_no_payload_that_a_program_uploads(open_directory: Path) -> None:
    """The filer lies where all users may enter, and the program's umask lets others read."""
    filer = open_directory / "filer"
    filer.mkdir()
    filer.chmod(0o755)
    before = os.umask(0o022)
    try:
        settings = SETTINGS | {"filer.root": str(filer)}
        with SmqBroker(open_directory, settings) as broker, broker.connect() as client:
            client.create_topic("secrets", 1)
            with client.producer() as producer:
                producer.send_reference("secrets", b"pin=4711")
            assert any(each.is_file() for each in (filer / "payloads").rglob("*"))
            assert read_by(STRANGER, STRANGER, filer) == set()
    finally:
        os.umask(before)
