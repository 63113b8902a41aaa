"""Changes at run time, over the settings of the start."""

from dataclasses import replace
from pathlib import Path

import pytest

from smq.model.config import SETTINGS, Config
from smq.model.live_config import changeable, conflict_of, in_force, problem_of_change, usable
from smq.model.setting import MiB, Update

STARTED = Config(
    data_dir=Path("/d"),
    shards=2,
    ring_bytes=16 * MiB,
    wal_segment_bytes=8 * MiB,
    wal_bytes_max=64 * MiB,
    wal_keep_bytes=64 * MiB,
)


def test_a_nodes_own_setting_precedes_that_of_all_nodes() -> None:
    changed = {"": {"seal.ms": "5", "num.partitions": "3"}, "2": {"seal.ms": "7"}}
    assert in_force(STARTED, changed) == replace(STARTED, seal_ms=5, num_partitions=3)
    assert in_force(STARTED, changed, "1").seal_ms == 5
    assert in_force(STARTED, changed, "2") == replace(STARTED, seal_ms=7, num_partitions=3)
    assert in_force(STARTED, {}, "2") is STARTED
    assert in_force(STARTED, changed, "2") is in_force(STARTED, dict(changed), "2")


@pytest.mark.parametrize(("text", "kept"), [("-1", 64), ("0", 0), ("1GiB", 64), ("5MiB", 5)])
def test_no_more_is_kept_of_the_wal_than_it_may_have(text: str, kept: int) -> None:
    changed = {"": {"wal.keep.bytes": text}}
    assert in_force(STARTED, changed).wal_keep_bytes == kept * MiB


@pytest.mark.parametrize(
    ("node", "name", "text", "sentence"),
    [
        ("", "nope", "1", "Unknown broker config name: nope"),
        ("", "port", "1", "it needs a restart"),
        ("1", "num.partitions", "2", "holds for all brokers"),
        ("", "seal.ms", "0", "Invalid value 0 for configuration seal.ms: 0 is too small"),
    ],
)
def test_an_impossible_change_is_refused_with_a_sentence(
    node: str, name: str, text: str, sentence: str
) -> None:
    assert sentence in problem_of_change(node, {}, {name: text})
    assert not problem_of_change(node, {name: text}, {name: text}), "it is not new"


def test_settings_that_conflict_are_found_on_each_node() -> None:
    changed = {"2": {"message.max.bytes": str(9 * MiB)}}
    assert not conflict_of(STARTED, changed, ())
    assert "must fit in half a ring" in conflict_of(STARTED, changed, ["1", "2"])


def test_stored_changes_that_a_start_cannot_use_are_left_out() -> None:
    stored = {
        "": {"message.max.bytes": str(9 * MiB), "seal.ms": "5", "gone": "1"},
        "2": {"port": "7", "seal.ms": "soon"},
    }
    changed, problems = usable(STARTED, stored)
    assert changed == {"": {"seal.ms": "5"}}
    assert len(problems) == 4
    assert any("set for broker 2, is not in force" in each for each in problems)


def test_every_setting_says_when_it_takes_effect() -> None:
    names = {each.name for each in changeable()}
    assert {"seal.ms", "log.retention.ms", "max.connections", "lag.alert.rules"} <= names
    assert not {"port", "shards", "ring.bytes", "data.dir"} & names
    assert all(isinstance(each.update, Update) for each in SETTINGS.values())


def test_settings_of_many_nodes_are_each_looked_at_once() -> None:
    """Each was checked with all nodes: 800 settings took half a minute, these an hour."""
    stored = {str(node): {"log.retention.ms": "5000"} for node in range(1, 4001)}
    stored["17"] = {"message.max.bytes": str(9 * MiB), "log.retention.ms": "5"}
    changed, problems = usable(STARTED, stored)
    assert len(changed) == 4000
    assert changed["17"] == {"log.retention.ms": "5"}
    assert len(problems) == 1
