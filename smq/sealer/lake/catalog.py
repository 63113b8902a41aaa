"""Which Iceberg catalog tables are in, from the broker's settings.

Secrets besides the URI's are no settings: they come from a file of properties, as pyiceberg names
them, or from pyiceberg's own configuration and environment.
"""

import tomllib
from pathlib import Path
from typing import NamedTuple

from smq.model.config import Config
from smq.sealer.lake.errors import LakeError

NAME = "smq"
FILE_NAME = "iceberg.sqlite"


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

    def options(self) -> dict[str, str]:
        """The arguments of pyiceberg's load_catalog. Raises LakeError."""
        options = {"type": "rest" if self.is_rest else "sql", "uri": self.uri}
        if self.warehouse:
            options["warehouse"] = self.warehouse
        if self.properties:
            try:
                found = tomllib.loads(Path(self.properties).expanduser().read_text())
            except (OSError, ValueError) as reason:
                raise LakeError(
                    "iceberg.catalog.properties", f"{self.properties} cannot be read: {reason}"
                ) from reason
            options |= {name: str(value) for name, value in found.items()}
        return options
