"""`smq tables`: which topics are tables, and how far."""

import json
from pathlib import Path
from uuid import UUID

from smq.model.catalog import Topic
from smq.sealer.lake.state import TableState, write_state
from smq.store.store import Store
from tests.app.smq_command import smq


def directory_with(path: Path, configs: dict[str, str], *, error: str = "") -> None:
    store = Store.open(path / "store.sqlite")
    store.add_topic(Topic("orders", UUID(int=1), (1,), (0,), configs, "kafka"), 0)
    store.commit()
    store.close()
    if configs:
        state = TableState(
            namespace="kafka", topic="orders", format="delta", topic_id=UUID(int=1).hex,
            location="there", files=3, synced_ms=7, error=error,
        )  # fmt: skip
        write_state(path, state)


def test_tables_are_listed_and_described(tmp_path: Path) -> None:
    directory_with(tmp_path, {"smq.table": "delta"})
    at = ("--data-dir", str(tmp_path))
    [found] = json.loads(smq("tables", "list", *at, "--json").stdout)
    assert (found["topic"], found["format"], found["files"]) == ("orders", "delta", 3)
    text = smq("tables", "list", *at).stdout
    assert "published" in text
    assert json.loads(smq("tables", "describe", "orders", *at, "--json").stdout) == found
    assert "location         there" in smq("tables", "describe", "orders", *at).stdout


def test_a_failure_stands_in_the_list(tmp_path: Path) -> None:
    directory_with(tmp_path, {"smq.table": "delta"}, error="the catalog is away")
    assert "the catalog is away" in smq("tables", "list", "--data-dir", str(tmp_path)).stdout


def test_without_tables_it_says_how_to_make_one(tmp_path: Path) -> None:
    directory_with(tmp_path, {})
    at = ("--data-dir", str(tmp_path))
    assert "smq.table=iceberg" in smq("tables", "list", *at).stdout
    done = smq("tables", "describe", "orders", *at)
    assert done.returncode == 1
    assert "orders has no table" in done.stderr
    missing = smq("tables", "list", "--data-dir", str(tmp_path / "missing"))
    assert missing.returncode == 1
    assert "cannot be read" in missing.stderr
