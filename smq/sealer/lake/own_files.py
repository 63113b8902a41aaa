"""Which files pyiceberg may read, write and delete for a table in a SQL catalog: its own metadata.

A table's metadata names where the next metadata goes, which old metadata is deleted, and the class
that opens files. A catalog from elsewhere (the default one lies in the data directory) may name
anything, so pyiceberg gets files below the topic's own directory only, and its own class.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smq.sealer.lake.errors import LakeError

if TYPE_CHECKING:
    from pyiceberg.io import FileIO, InputFile, OutputFile

IO_CLASS = "py-io-impl"  # In properties of a table: any class of any module.
COMPRESSED = ".gz.metadata.json"  # The specification's name; pyiceberg goes by it.
_NAME = re.compile(r"[\w.=-]+", re.ASCII)
_TABLES = ("iceberg_tables", "iceberg_namespace_properties")
_PARTS = re.compile(r",(?![^(]*\))")
_COLUMN = re.compile(r"\w+ (VARCHAR\(\d+\)|TEXT)( NOT NULL)?|PRIMARY KEY \([\w, ]+\)")


class Elsewhere(PermissionError):
    """A table names a file in another place."""


class OwnFiles:
    """A FileIO that has the files of one directory. Raises Elsewhere for others."""

    def __init__(self, io: "FileIO", directory: str) -> None:
        self._io, self._directory = io, directory
        self.properties = io.properties

    def new_input(self, location: str) -> "InputFile":
        """A file to read."""
        return self._io.new_input(_own(location, self._directory))

    def new_output(self, location: str) -> "OutputFile":
        """A file to write."""
        return self._io.new_output(_own(location, self._directory))

    def delete(self, location: "str | InputFile | OutputFile") -> None:
        """Delete a file."""
        place = location if isinstance(location, str) else location.location
        self._io.delete(_own(place, self._directory))


def _own(location: str, directory: str) -> str:
    """A location in the directory. Raises Elsewhere."""
    name = location.removeprefix(directory)
    if name == location or not _NAME.fullmatch(name):
        raise Elsewhere(
            f"the table names {location}, and SMQ opens only files in {directory}; drop the "
            "table, and it is published again"
        )
    if name.endswith(COMPRESSED):
        raise Elsewhere(
            f"the table names {location}, and SMQ opens no compressed metadata, which may be of "
            "any size; drop the table, and it is published again"
        )
    return location


def keep_to(directory: str, catalog: Any, *, is_rest: bool) -> None:  # noqa: ANN401  (an extra's)
    """Have a catalog's tables use OwnFiles of a directory. A REST server is the operator's, and
    says where its files are; what a table says of classes counts nowhere."""
    load = catalog._load_file_io  # noqa: SLF001  (Nothing else can set it.)

    def loaded(properties: Any = None, location: str | None = None) -> Any:  # noqa: ANN401
        if is_rest:
            said = {name: each for name, each in (properties or {}).items() if name != IO_CLASS}
            return load(said, location)
        return OwnFiles(load({}, location), directory)

    catalog._load_file_io = loaded  # noqa: SLF001  (as above)
    if is_rest:
        return
    convert = catalog._convert_orm_to_iceberg  # noqa: SLF001  (It opens the metadata by itself.)

    def converted(row: Any) -> Any:  # noqa: ANN401  (as above)
        _own(row.metadata_location or "", directory)
        return convert(row)

    catalog._convert_orm_to_iceberg = converted  # noqa: SLF001  (as above)


def refuse_foreign_schema(path: Path) -> None:
    """Raise LakeError if a catalog's SQLite file has more on its tables than pyiceberg makes.

    A trigger, a view in a table's place, or an expression in a table may run for ever.
    """
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as found:
            rows = found.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    except sqlite3.Error as reason:
        raise LakeError(str(path), f"it cannot be read: {reason}") from reason
    for kind, name, table, sql in rows:
        is_used = not {str(name).lower(), str(table).lower()}.isdisjoint(_TABLES)
        if is_used and not _is_plain(kind, sql):
            raise LakeError(
                str(path),
                f"the {kind} {name!r} is not as pyiceberg makes it: somebody has changed this "
                "catalog; move it away, and its tables are published again",
            )


def _is_plain(kind: str, sql: str | None) -> bool:
    if kind == "index":
        return sql is None  # A primary key's.
    head, _, rest = " ".join(str(sql).replace('"', "").split()).partition("(")
    columns = _PARTS.split(rest.removesuffix(")"))
    is_table = kind == "table" and re.fullmatch(r"CREATE TABLE \w+ ?", head) is not None
    return is_table and all(_COLUMN.fullmatch(each.strip()) for each in columns)
