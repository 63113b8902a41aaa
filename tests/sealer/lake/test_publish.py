"""A table has every sealed row once, whatever dies in between, and follows the manifest."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

from smq.filer.location import Location
from smq.model.config import Config
from smq.model.errors import StoreError, Unavailable
from smq.model.now import Now
from smq.model.segments import is_table_metadata
from smq.model.topic_schema import PLAIN
from smq.model.topic_settings import TopicSettings
from smq.sealer import years
from smq.sealer.housekeeping import Housekeeping
from smq.sealer.lake.errors import LakeError
from smq.sealer.lake.plan import changes
from smq.sealer.lake.state import SLACK_MS, in_step, path_of, states
from smq.sealer.lake.table import TableName
from smq.testing.s3_server import BUCKET, REGION, S3Server
from smq.testing.sealing import FakeShard, Fuse, FusedManifest, HangingManifest, Killed
from smq.wire.internal.messages import PartitionState
from tests.sealer.lake.lake_kit import (
    BEGIN_MS,
    KEEP_MS,
    NAMESPACE,
    TOPIC,
    Lake,
    assert_follows,
    lake_in,
    story,
)
from tests.sealer.sealed import batch

RAW = 128  # An attribute that nobody knows: such batches are sealed raw.
EXPIRES = TopicSettings.of({"retention.ms": "100", "smq.table": "delta"}, Config(shards=1))


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    with lake_in(tmp_path, request.param) as lake:
        yield lake


def test_two_partitions_become_one_table_over_their_files(lake: Lake) -> None:
    lake.seal(0, 3)
    lake.seal(1)
    assert lake.publish() is False
    assert len(lake.expected()) == 12
    assert_follows(lake)
    assert lake.offsets() == {"0": 9, "1": 3}
    lake.seal(1, 2)
    lake.publish()
    assert_follows(lake)
    assert lake.offsets() == {"0": 9, "1": 9}


def test_a_table_with_columns_of_every_type_is_recognized(lake: Lake) -> None:
    types: list[object] = [*PLAIN, {"list": "string"}]
    types += [{"struct": [{"name": "x", "type": each}]} for each in types]
    types += [{"list": each} for each in types]
    fields = [{"name": f"c{number}", "type": each} for number, each in enumerate(types)]
    lake.schema = json.dumps({"fields": fields[:-1]})
    lake.seal(0)
    lake.publish()
    lake.seal(0)
    lake.publish()
    assert_follows(lake)
    lake.schema = json.dumps({"fields": fields})
    lake.seal(1)
    lake.publish()
    assert_follows(lake)
    lake.schema = json.dumps({"fields": [{"name": "c0", "type": "string"}]})
    lake.seal(1)
    with pytest.raises(LakeError, match="its column c0 is bool, and the topic's schema says str"):
        lake.publish()


@pytest.mark.parametrize(
    "uri",
    ["http://127.0.0.1:1/s3cret-path", "http://u:s3cret@127.0.0.1:x/", "nothing://u:s3cret@h/x"],
)
def test_the_state_names_no_secret_of_the_catalog(tmp_path: Path, uri: str) -> None:
    """Door fault 7: anybody who sees the console read it there."""
    with lake_in(tmp_path, "iceberg") as lake:
        lake.catalog_uri = uri
        lake.seal(0)
        with pytest.raises(StoreError):
            lake.publish()
        [state] = states(tmp_path)
        assert "fails" in state.error
        assert "s3cret" not in state.error


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_failed_first_publishing_is_recorded_in_the_topics_state(
    tmp_path: Path, *, is_created_again: bool
) -> None:
    """Use fault 5: the state named no topic, or the one before: `smq tables list` told of a table
    that is waiting, without an error."""
    with lake_in(tmp_path, "iceberg") as lake:
        lake.seal(0)
        if is_created_again:
            lake.publish()
            lake = lake.recreated()  # noqa: PLW2901  (the same lake)
        lake.catalog_uri = "nothing://h/x"
        with pytest.raises(StoreError):
            lake.publish()
        assert "fails" in lake.state().error
        assert lake.state().topic_id == lake.topic_id
        assert (lake.state().synced_ms, lake.state().note) == (0, "")


OUTSIDE_MS = [-(2**62), -62_135_596_800_001, 253_402_300_800_000, BEGIN_MS * 1000, 2**63 - 1]


@pytest.mark.parametrize("version", ["this", "earlier"])
def test_times_outside_the_years_1_to_9999_are_published(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Use fault 5: publishing ended with OverflowError, and never came further."""
    with monkeypatch.context() as before:
        if version == "earlier":
            before.setattr(years, "TIME_MS_MIN", -(2**63 - 1) // 1000)
            before.setattr(years, "TIME_MS_MAX", (2**63 - 1) // 1000)
        first = len(OUTSIDE_MS)
        lake.seal_batches(0, [batch(i, time=time) for i, time in enumerate(OUTSIDE_MS)])
        lake.seal_batches(0, [batch(first, 2, time=BEGIN_MS) + batch(first + 2, time=2**55)])
    lake.publish()
    assert_follows(lake)
    if lake.format == "iceberg":
        rows = lake.iceberg().scan(f"_ts_ms > {BEGIN_MS}").to_arrow()
        early = lake.iceberg().scan("_ts < '2024-01-01T00:00:00+00:00'").to_arrow()
        late = lake.iceberg().scan("_ts is null or _ts >= '2024-01-01T00:00:00+00:00'").to_arrow()
    else:
        when = pa.scalar(datetime(2024, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC"))
        rows = lake.delta().to_pyarrow_table(filters=pc.field("_ts_ms") > BEGIN_MS)
        early = lake.delta().to_pyarrow_table(filters=pc.field("_ts") < when)
        late = lake.delta().to_pyarrow_table(
            filters=(pc.field("_ts") >= when) | pc.field("_ts").is_null()
        )
    assert sorted(rows["_ts_ms"].to_pylist()) == sorted([*OUTSIDE_MS[2:], BEGIN_MS + 1, 2**55])
    assert early.num_rows + late.num_rows == first + 3
    assert {BEGIN_MS, BEGIN_MS + 1} <= set(early["_ts_ms"].to_pylist())


def test_a_topic_without_records_is_an_empty_table(lake: Lake) -> None:
    lake.publish()
    assert lake.rows() == []
    assert lake.state().ends == {"0": 0, "1": 0}


def test_nothing_is_committed_when_nothing_has_changed(lake: Lake) -> None:
    lake.seal(0)
    lake.publish()
    taken = lake.fuse.taken
    lake.publish()
    lake.publish(check=True)
    assert lake.fuse.taken == taken
    assert_follows(lake)


def test_lines_that_may_not_be_durable_are_not_published(lake: Lake) -> None:
    """Data fault 8, its kind: a table outlives the power loss that takes a line."""
    lake.seal(0)
    lake.publish()
    lake.seal(0)
    publishing = lake.publishing()._replace(manifest=HangingManifest(lake.manifest))
    before = lake.rows()
    with pytest.raises(Unavailable, match="does not answer"):
        publishing.publish(lake.job())
    assert lake.rows() == before


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_step_loses_and_doubles_nothing(
    tmp_path: Path, lake: Lake, *, after: bool
) -> None:
    story(lake)
    steps = lake.fuse.taken
    assert steps > 10
    for step in range(1, steps + 1):
        directory = tmp_path / f"{step}"
        directory.mkdir()
        with lake_in(directory, lake.format) as other:
            other.fuse = Fuse(step, after=after)
            with pytest.raises(Killed):
                story(other)
            other.fuse = Fuse()
            other.publish(check=True)
            assert_follows(other)


def test_a_merged_file_takes_the_place_of_its_parts_in_one_commit(lake: Lake) -> None:
    lake.seal(0, 4)
    lake.publish()
    before = lake.rows()
    assert lake.merge(0) == 4
    taken = lake.fuse.taken
    lake.publish()
    assert lake.fuse.taken == taken + 1
    assert lake.rows() == before
    assert_follows(lake)
    assert lake.state().files == 1


def test_a_raw_segment_is_counted_and_passed(lake: Lake) -> None:
    lake.seal(0)
    lake.seal(0, attributes=RAW)
    lake.seal(0)
    lake.publish()
    assert len(lake.rows()) == 6
    assert_follows(lake)
    assert lake.state().raw_records == 3
    assert lake.offsets() == {"0": 9, "1": 0}


def test_expired_segments_leave_the_table_before_their_files_go(lake: Lake) -> None:
    lake.seal(0, 3)
    lake.publish()
    lake.now_ms = BEGIN_MS + 1000
    shard, manifest = FakeShard([]), FusedManifest(lake.manifest, now_ms=lake.now_ms)
    keeping = Housekeeping(lake.store, shard, manifest)
    state = PartitionState(lake.numbers[0], 0, 0, 0, 0, 0, 0)
    retention = keeping.retain(lake.place(0), EXPIRES, Now(lake.now_ms, lake.now_ms), state)
    assert len(retention.deleted) == 3
    assert len(lake.rows()) == 9, "the files are there"

    def sweep(now_ms: int) -> list[str]:
        ids = {(NAMESPACE, TOPIC): lake.topic_id}
        steps = in_step(list(states(lake.data_dir)), ids, now_ms)
        paths = [facts.key for facts in lake.store.list("topics/")]
        return keeping.sweep(paths, now_ms - KEEP_MS, steps)

    later = lake.now_ms + 2 * KEEP_MS
    assert sweep(later) == [], "the table names them"
    lake.publish()
    assert lake.rows() == []
    assert sweep(lake.now_ms + KEEP_MS // 2) == [], "and readers have their names"
    lake.now_ms = later
    lake.publish()
    assert sorted(sweep(later)) == sorted(each.path for each in retention.deleted)
    assert [each for each in lake.store.list("topics/") if not is_table_metadata(each.key)] == []
    assert lake.rows() == []


def test_a_topic_that_was_created_again_has_a_table_of_its_own(lake: Lake) -> None:
    lake.seal(0, 2)
    lake.seal(1)
    lake.publish()
    ids = {(NAMESPACE, TOPIC): lake.topic_id}
    again = lake.recreated()
    assert in_step(list(states(lake.data_dir)), ids, BEGIN_MS) != {
        f"topics/{NAMESPACE}/{TOPIC}/": 0
    }
    ids = {(NAMESPACE, TOPIC): again.topic_id}
    assert in_step(list(states(lake.data_dir)), ids, BEGIN_MS) == {
        f"topics/{NAMESPACE}/{TOPIC}/": 0
    }
    again.publish()
    assert again.rows() == []
    again.now_ms += 1
    again.seal(1)
    again.publish()
    assert_follows(again)


def test_a_table_that_no_topic_has_is_dropped(lake: Lake) -> None:
    lake.seal(0)
    lake.publish()
    for _ in range(2):  # The second after a kill before the state was forgotten.
        lake.publishing().withdraw(NAMESPACE, TOPIC, lake.format)
    assert list(states(lake.data_dir)) == []
    assert not any(is_table_metadata(each.key) for each in lake.store.list("topics/"))
    assert len(list(lake.store.list("topics/"))) == 1, "the records are there"
    lake.publish()
    assert_follows(lake)


def test_a_state_from_elsewhere_names_no_file_that_is_written(lake: Lake, tmp_path: Path) -> None:
    """Door fault 2: publishing wrote the state to the path that the state's names made."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.json").write_text("mine")
    path = path_of(lake.data_dir, NAMESPACE, TOPIC, lake.format)
    path.parent.mkdir(parents=True)
    crafted = {"namespace": str(home), "topic": ".", "format": "config"}
    path.write_text(json.dumps(crafted))
    lake.seal(0)
    lake.publish()
    assert_follows(lake)
    assert (home / "config.json").read_text() == "mine"


def test_a_dropped_table_is_published_again_and_that_is_said(lake: Lake) -> None:
    lake.seal(0, 2)
    lake.publish()
    lake.drop()
    lake.publish(check=True)
    assert_follows(lake)
    assert "dropped by somebody else" in lake.state().note


def test_a_table_with_files_of_others_is_left_alone_and_the_error_says_what_to_do(
    lake: Lake,
) -> None:
    lake.seal(0)
    lake.publish()
    if lake.format == "iceberg":
        lake.iceberg().append(lake.iceberg().scan().to_arrow())
    else:
        rows: pa.Table = lake.delta().to_pyarrow_table()
        write_deltalake(lake.uri(), rows, mode="append")
    lake.seal(0)
    with pytest.raises(LakeError, match="Drop the table, and it is published again"):
        lake.publish()
    assert "somebody else writes" in lake.state().error
    assert lake.state().error_ms == BEGIN_MS
    assert len(lake.rows()) == 6
    lake.drop()
    lake.publish()
    assert_follows(lake)


def test_a_table_of_somebody_else_is_neither_replaced_nor_dropped(tmp_path: Path) -> None:
    with lake_in(tmp_path, "iceberg") as lake:
        theirs = pa.table({"x": [1, 2]})
        uri = f"sqlite:///{lake.data_dir}/iceberg.sqlite"
        catalog = load_catalog("smq", type="sql", uri=uri)
        catalog.create_namespace(NAMESPACE)
        where = (tmp_path / "theirs").as_uri()
        catalog.create_table((NAMESPACE, TOPIC), theirs.schema, location=where).append(theirs)
        lake.seal(0)
        with pytest.raises(LakeError, match="that this broker did not make"):
            lake.publish()
        lake.publishing().withdraw(NAMESPACE, TOPIC, "iceberg")
        assert catalog.load_table((NAMESPACE, TOPIC)).scan().to_arrow() == theirs


def test_files_that_others_removed_come_back(lake: Lake) -> None:
    lake.seal(0, 2)
    lake.publish()
    if lake.format == "iceberg":
        lake.iceberg().delete("_offset < 3")
    else:
        lake.delta().delete("_offset < 3")
    assert len(lake.rows()) == 3
    lake.publish(check=True)
    assert_follows(lake)
    assert "added again" in lake.state().note


def test_of_two_workers_at_once_one_fails(lake: Lake) -> None:
    lake.seal(0)
    lake.publish()
    publishing, name = lake.publishing(), lake.publishing().table
    lake.seal(0)
    job = lake.job()
    tables = [name(TableName(NAMESPACE, TOPIC), lake.format) for _ in range(2)]
    lines = publishing._lines(job)
    planned = []
    for table in tables:
        held = table.read()
        assert held is not None
        planned.append(changes(lines, held.files)[0])
    commits = [publishing._commit(plan[0], lines) for plan in planned]
    tables[0].commit(commits[0])
    with pytest.raises(LakeError, match="somebody else"):
        tables[1].commit(commits[1])
    lake.publish(check=True)
    assert_follows(lake)


def test_many_files_are_added_some_at_a_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smq.sealer.lake.plan.changes.__defaults__", (2,))
    lake.seal(0, 5)
    assert [lake.publish() for _ in range(3)] == [True, True, False]
    assert_follows(lake)


def test_a_segment_whose_file_is_gone_is_an_error_that_names_it(lake: Lake) -> None:
    lake.seal(0)
    [segment] = lake.manifest.segments(1)
    lake.store.delete(segment.path)
    with pytest.raises(StoreError, match="its footer cannot be read"):
        lake.publish()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_bucket_has_files_and_metadata(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    server = S3Server(tmp_path)
    try:
        location = Location(f"s3://{BUCKET}/lake", server.endpoint, REGION)
        with lake_in(tmp_path, kind, location) as lake:
            story(lake)
            held = lake.publishing().table(*_named(lake)).read()
            assert held is not None
            assert held.foreign == []
            assert set(held.files) == {
                segment.path for number in (1, 2) for segment in lake.manifest.segments(number)
            }
            metadata = [each for each in lake.store.list("topics/") if is_table_metadata(each.key)]
            assert metadata
            lake.publishing().withdraw(NAMESPACE, TOPIC, kind)
            assert not any(is_table_metadata(each.key) for each in lake.store.list("topics/"))
    finally:
        server.kill()


def _named(lake: Lake) -> tuple[TableName, str]:
    return TableName(NAMESPACE, TOPIC), lake.format


def test_files_are_the_same_and_no_copies(lake: Lake) -> None:
    lake.seal(0)
    lake.publish()
    [segment] = lake.manifest.segments(1)
    paths = list(Path(lake.location.root).rglob("*.parquet"))
    assert [str(each.relative_to(lake.location.root)) for each in paths] == [segment.path]
    assert "partition" not in pq.read_schema(paths[0]).names


@pytest.mark.parametrize("step_ms", [0, 3_600_000])
def test_files_that_a_table_still_names_stay_though_the_clock_was_set_back(
    lake: Lake, step_ms: int
) -> None:
    """Data fault 6: what was published by a clock ahead counted as later than what came after."""
    lake.seal(0, 3)
    lake.step_ms = step_ms
    lake.publish()
    lake.step_ms = 0
    lake.now_ms += SLACK_MS
    named = {segment.path for segment in lake.manifest.segments(lake.numbers[0])}
    lake.merge(0)
    keeping = Housekeeping(lake.store, FakeShard([]), FusedManifest(lake.manifest))

    def unnamed() -> set[str]:
        steps = in_step(
            list(states(lake.data_dir)), {(NAMESPACE, TOPIC): lake.topic_id}, lake.now_ms
        )
        paths = [facts.key for facts in lake.store.list("topics/")]
        return set(keeping.unnamed(paths, lake.now_ms + 1, steps))

    assert unnamed() == set(), "the table names them"
    lake.now_ms += 1
    lake.publish()
    lake.now_ms += 2 * SLACK_MS
    lake.publish()
    assert unnamed() == named
