"""`smq tables`: which topics are tables, and how far."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.sealer.lake.state import TableState, write_state
from smq.store.store import Store
from smq.testing.smq_broker import SmqBroker
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


@pytest.mark.slow
def test_a_schema_is_inferred_from_the_first_records_and_set(smq_broker: SmqBroker) -> None:
    at = ("--bootstrap", smq_broker.bootstrap)
    with smq_broker.connect() as client:
        client.create_topic("clicks", 1)
        client.create_topic("words", 1)
        with client.producer() as producer:
            producer.send("clicks", b'{"user": "a", "ms": 5, "mixed": 1}')
            producer.send("clicks", b'{"user": "b", "ms": 6, "mixed": "x"}')
            producer.send("words", b"hello")
    done = smq("tables", "infer", "clicks", *at, "--json")
    facts = json.loads(done.stdout)
    fields = [{"name": "user", "type": "string"}, {"name": "ms", "type": "int64"}]
    assert json.loads(facts["schema"]) == {"fields": fields}
    assert facts["left_out"] == ["mixed: its values are of no one type"]
    assert smq("tables", "infer", "clicks", *at, "--set").returncode == 0
    listed = smq("config", "list", "--topic", "clicks", "--only-set", *at).stdout
    assert '{"name": "ms", "type": "int64"}' in listed
    for topic, said in (("words", "no schema fits"), ("nothing", "nothing does not exist")):
        done = smq("tables", "infer", topic, *at)
        assert done.returncode == 1
        assert said in done.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--command-config", "nowhere"), "the properties file nowhere cannot be read"),
        (("--bootstrap", "a:b:c"), "--bootstrap: a broker's address is host:port"),
    ],
)
def test_a_schema_of_a_broker_that_is_named_wrongly_is_refused(
    options: tuple[str, str], sentence: str
) -> None:
    done = smq("tables", "infer", "clicks", *options)
    assert done.returncode == 1
    assert done.stderr.startswith(f"smq: {sentence}")
