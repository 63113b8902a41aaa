"""The catalog by partition number: what a version changes is taken, and all else stays."""

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from hypothesis import given, strategies as st

from smq.app.sealer.known import Known, Place
from smq.app.sealer.tables import TableKey
from smq.model.catalog import BROKER, Catalog, Published, Topic
from smq.model.config import Config
from smq.model.segments import SealedPartition
from smq.model.topic_settings import TopicSettings
from smq.wire.internal.messages import Owner

CONFIG = Config(data_dir=Path("/nowhere"), shards=2)
WITH_TABLE = {"smq.table": "delta"}


def topic(name: str, *numbers: int, configs: Mapping[str, str] | None = None) -> Topic:
    logs = tuple(number % 2 for number in numbers)
    return Topic(name, UUID(int=numbers[0]), numbers, logs, configs or {})


def taken(known: Known, *topics: Topic, settings: Published | None = None) -> None:
    version = known.version + 1
    catalog = Catalog("c", version, {each.name: each for each in topics}, settings)
    known.take(Catalog.decode(catalog.encode()), version, CONFIG)
    known.invariants()


def test_a_partition_has_its_place_until_its_topic_is_gone() -> None:
    known = Known()
    kept, gone = topic("kept", 3, 4, 9), topic("gone", 5)
    taken(known, kept, gone)
    settings = TopicSettings.of({}, CONFIG)
    assert known.place(9) == Place(SealedPartition("kafka", "kept", 2, 9), settings, 2)
    assert known.place(4) == Place(SealedPartition("kafka", "kept", 1, 4), settings, 1)
    assert known.settings(5) == settings
    taken(known, kept)
    assert (known.place(5), known.settings(5)) == (None, None)
    assert known.owners() == [Owner("kafka", "kept", 86_400_000, [(3, 2), (4, 1), (9, 2)])]


def test_a_topic_that_did_not_change_costs_nothing() -> None:
    known = Known()
    kept = [topic(f"kept{i}", 2 * i + 1, 2 * i + 2, configs=WITH_TABLE) for i in range(9)]
    taken(known, *kept)
    jobs = {name: known.tables[name] for name in known.tables}
    taken(known, *kept, topic("one-more", 99, configs=WITH_TABLE))
    new = TableKey("kafka", "one-more", "delta")
    assert known.tables.keys() - jobs.keys() == {new}
    assert all(known.tables[name] is job for name, job in jobs.items())
    topics = known._catalog.by_name.values()
    assert [each for each in topics if each.derived] == [], "settings are derived at need"


def test_settings_that_change_hold_for_all_partitions_or_those_of_a_node() -> None:
    known = Known()
    topics = topic("a", 1, 2), topic("b", 3, configs=WITH_TABLE)
    taken(known, *topics)
    name = TableKey("kafka", "b", "delta")
    assert known.tables[name].keep_ms == CONFIG.filer_sweep_ms
    changed = {"": {"filer.sweep.ms": "7000"}, "2": {"log.retention.ms": "5000"}}
    taken(known, *topics, settings={BROKER: changed})
    found = {number: known.settings(number) for number in (1, 2, 3)}
    kept_ms = {number: each.retention_ms for number, each in found.items() if each}
    assert kept_ms == {1: 5000, 2: TopicSettings.of({}, CONFIG).retention_ms, 3: 5000}
    assert known.tables[name].keep_ms == 7000


@st.composite
def catalogs(draw: st.DrawFn) -> list[Topic]:
    """Some topics, grown or begun anew from one to the next, with and without tables."""
    names = draw(st.sets(st.sampled_from("abcd")))
    topics = []
    for name in sorted(names):
        first = 1000 * ord(name) + 10 * draw(st.integers(0, 2))
        numbers = range(first, first + draw(st.integers(1, 3)))
        configs = draw(st.sampled_from([{}, WITH_TABLE, {"smq.table": "iceberg"}]))
        topics.append(topic(name, *numbers, configs=configs))
    return topics


@given(st.lists(catalogs(), max_size=5))
def test_each_new_catalog_version_updates_the_known_places(versions: list[list[Topic]]) -> None:
    known = Known()
    for topics in versions:
        taken(known, *topics)
        for each in topics:
            places = [known.place(number) for number in each.partition_numbers]
            found = [place.partition.partition for place in places if place]
            assert found == list(range(each.partition_count))
