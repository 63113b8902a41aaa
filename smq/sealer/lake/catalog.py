"""Which Iceberg catalog tables are in, from the broker's settings.

Secrets besides the URI's are no settings: they come from a file of properties, as pyiceberg names
them, or from pyiceberg's own configuration and environment.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from smq.model.config import Config
from smq.model.named_files import read_named
from smq.model.urls import hide, parts_of_url
from smq.sealer.lake.errors import LakeError

NAME = "smq"
FILE_NAME = "iceberg.sqlite"
SQLITE = "sqlite:///"


SECRETS = ("token", "credential", "secret", "password", "key", "auth")  # In names of properties.


class CatalogSettings(NamedTuple):
    """`uri` of SQLAlchemy, or http(s) of a REST catalog; `properties` a TOML file or ""."""

    uri: str
    warehouse: str = ""
    properties: str = ""

    @classmethod
    def of(cls, config: Config) -> "CatalogSettings":
        """A broker's settings; by default, its own SQLite file."""
        return cls(
            config.iceberg_catalog_uri or f"sqlite:///{config.data_dir / FILE_NAME}",
            config.iceberg_catalog_warehouse,
            config.iceberg_catalog_properties,
        )

    @property
    def is_rest(self) -> bool:
        return self.uri.startswith(("http://", "https://"))

    @property
    def file(self) -> Path | None:
        """The file of an SQLite catalog."""
        if not self.uri.startswith(SQLITE):
            return None
        return Path(self.uri.removeprefix(SQLITE).partition("?")[0])

    def hidden(self, text: str) -> str:
        """An error of the catalog without its secrets: libraries repeat addresses and tokens."""
        if self.uri.startswith("sqlite:"):  # A file.
            return hide(text, self._secrets())
        return hide(text, [*parts_of_url(self.uri), *self._secrets()])

    def _secrets(self) -> Iterator[str]:
        try:
            properties = self._properties()
        except LakeError:
            return
        for name, value in properties.items():
            if any(each in name.lower() for each in SECRETS):
                yield from (value, value.partition(":")[2])  # `id:secret` of OAuth.

    def options(self) -> dict[str, str]:
        """The arguments of pyiceberg's load_catalog. Raises LakeError."""
        options = {"type": "rest" if self.is_rest else "sql", "uri": self.uri}
        if self.warehouse:
            options["warehouse"] = self.warehouse
        return options | self._properties()

    def _properties(self) -> dict[str, str]:
        if not self.properties:
            return {}
        import tomllib  # noqa: PLC0415  (seldom needed)

        try:
            found = tomllib.loads(read_named(Path(self.properties).expanduser()).decode())
        except (OSError, ValueError) as reason:
            raise LakeError(
                "iceberg.catalog.properties", f"{self.properties} cannot be read: {reason}"
            ) from reason
        return {name: str(value) for name, value in found.items()}
