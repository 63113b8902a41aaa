"""What an Iceberg catalog from elsewhere names is neither read, written, deleted nor imported."""

import gzip
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from smq.sealer.lake.errors import LakeError
from smq.sealer.lake.own_files import Elsewhere, OwnFiles, keep_to, refuse_foreign_schema
from tests.sealer.lake.lake_kit import Lake, assert_follows, lake_in

SLOW = "(WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c)"
Metadata = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "data").mkdir()
    with lake_in(tmp_path / "data", "iceberg") as lake:
        lake.seal(0)
        lake.publish()
        lake.seal(0)
        yield lake


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory of the user, with a file."""
    directory = tmp_path / "home"
    directory.mkdir()
    (directory / "precious").write_text("mine")
    return directory


def craft(lake: Lake, change: Callable[[Metadata], None]) -> None:
    """Change the table's metadata in its file."""
    path = Path(lake.iceberg().metadata_location.removeprefix("file://"))
    metadata: Metadata = json.loads(path.read_text())
    change(metadata)
    path.write_text(json.dumps(metadata))


def change_catalog(lake: Lake, script: str) -> None:
    with closing(sqlite3.connect(lake.data_dir / "iceberg.sqlite")) as catalog:
        catalog.executescript(script)


def test_a_file_that_the_metadata_calls_old_is_not_deleted(lake: Lake, home: Path) -> None:
    """Door fault 2: a commit deletes old metadata, which may be any file of the user."""

    def change(metadata: Metadata) -> None:
        old = {"metadata-file": f"file://{home}/precious", "timestamp-ms": 1}
        metadata["metadata-log"].insert(0, old)
        metadata["properties"]["write.metadata.previous-versions-max"] = "1"

    craft(lake, change)
    lake.publish()
    assert_follows(lake)
    assert (home / "precious").read_text() == "mine"


@pytest.mark.parametrize("name", ["location", "write.metadata.path"])
def test_no_metadata_is_written_elsewhere(lake: Lake, home: Path, name: str) -> None:
    """Door fault 2: a table says where its next metadata goes."""

    def change(metadata: Metadata) -> None:
        place = metadata if name == "location" else metadata["properties"]
        place[name] = f"file://{home}/new"

    craft(lake, change)
    with pytest.raises(LakeError, match="drop the table, and it is published again"):
        lake.publish()
    assert [each.name for each in home.iterdir()] == ["precious"]
    lake.drop()
    lake.publish()
    assert_follows(lake)


def test_no_module_that_a_table_names_is_imported(lake: Lake) -> None:
    """Door fault 2: pyiceberg imports the class that a table's properties name."""
    sys.modules.pop("this", None)
    craft(lake, lambda metadata: metadata["properties"].update({"py-io-impl": "this.s"}))
    lake.publish()
    assert "this" not in sys.modules
    assert lake.state().files == 2


class RestCatalog:
    """The part of pyiceberg's that opens files."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def _load_file_io(self, properties: dict[str, str], location: str | None) -> PyArrowFileIO:
        assert location == "s3://bucket/x"
        self.given = properties
        return PyArrowFileIO()


def test_a_rest_server_says_how_to_open_files_but_not_by_which_class() -> None:
    catalog = RestCatalog()
    keep_to("s3://bucket/metadata/", catalog, is_rest=True)
    catalog._load_file_io({"py-io-impl": "this.s", "s3.region": "x"}, "s3://bucket/x")
    assert catalog.given == {"s3.region": "x"}


def test_metadata_elsewhere_is_not_read(lake: Lake, home: Path) -> None:
    """Door fault 2: the catalog may name a pipe, at which reading waits for ever."""
    change_catalog(lake, f"UPDATE iceberg_tables SET metadata_location = 'file://{home}/precious'")
    with pytest.raises(LakeError, match="this broker did not make"):
        lake.publish()


def test_compressed_metadata_is_not_opened(lake: Lake) -> None:
    """Of the kind of door fault 2: some kilobytes inflated to all of the worker's memory."""
    name = lake.iceberg().metadata_location
    path = Path(name.removeprefix("file://"))
    packed = path.with_name(path.name.replace(".metadata.json", ".gz.metadata.json"))
    packed.write_bytes(gzip.compress(path.read_bytes()))
    change_catalog(lake, f"UPDATE iceberg_tables SET metadata_location = 'file://{packed}'")
    with pytest.raises(LakeError, match=r"this broker did not make\. Rename or drop it"):
        lake.publish()
    lake.drop()
    lake.publish()
    assert_follows(lake)


@pytest.mark.parametrize(
    "script",
    [
        f"CREATE TRIGGER t BEFORE UPDATE ON iceberg_tables BEGIN SELECT {SLOW}; END",
        f"""ALTER TABLE iceberg_tables RENAME TO old;
        CREATE VIEW Iceberg_Tables AS SELECT * FROM old WHERE {SLOW} > 0""",
        "CREATE INDEX i ON iceberg_tables (table_name) WHERE length(table_name) > 0",
        """ALTER TABLE iceberg_tables RENAME TO old;
        CREATE TABLE iceberg_tables (catalog_name VARCHAR(255) CHECK (length(hex(1)) > 0))""",
        """ALTER TABLE iceberg_tables RENAME TO old;
        CREATE VIRTUAL TABLE iceberg_tables USING fts5(catalog_name)""",
    ],
)
def test_a_catalog_with_more_than_its_tables_is_refused(lake: Lake, script: str) -> None:
    """Door fault 2: SQLite runs what a schema holds, perhaps for ever."""
    change_catalog(lake, script)
    with pytest.raises(LakeError, match="is not as pyiceberg makes it"):
        lake.publish()
    (lake.data_dir / "iceberg.sqlite").unlink()
    lake.publish()
    assert_follows(lake)


def test_other_tables_in_the_catalogs_file_are_left_alone(lake: Lake) -> None:
    change_catalog(
        lake, "CREATE TABLE other (a INT DEFAULT (1)); CREATE VIEW v AS SELECT a FROM other"
    )
    lake.publish()
    assert_follows(lake)


def test_a_catalog_that_had_a_column_added_is_accepted(tmp_path: Path) -> None:
    """pyiceberg adds `iceberg_type` to catalogs of its earlier versions."""
    path = tmp_path / "iceberg.sqlite"
    refuse_foreign_schema(path)
    with closing(sqlite3.connect(path)) as catalog:
        catalog.execute(
            "CREATE TABLE iceberg_tables (\n\tcatalog_name VARCHAR(255) NOT NULL, \n\t"
            "table_name VARCHAR(255) NOT NULL, \n\tPRIMARY KEY (catalog_name, table_name)\n)"
        )
        catalog.execute("ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)")
    refuse_foreign_schema(path)
    path.write_bytes(b"no database" * 100)
    with pytest.raises(LakeError, match="cannot be read"):
        refuse_foreign_schema(path)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "", ".x/y", "a%2f..", "a?b", "a\n"])
def test_files_have_plain_names(tmp_path: Path, name: str) -> None:
    files = OwnFiles(PyArrowFileIO(), f"file://{tmp_path}/metadata/")
    for touch in (files.new_input, files.new_output, files.delete):
        with pytest.raises(Elsewhere):
            touch(f"file://{tmp_path}/metadata/{name}")
