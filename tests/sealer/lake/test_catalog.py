"""The catalog's settings become pyiceberg's."""

from pathlib import Path

import pytest

from smq.model.config import Config
from smq.sealer.lake.catalog import CatalogSettings
from smq.sealer.lake.errors import LakeError


def test_the_default_is_a_file_in_the_data_directory() -> None:
    settings = CatalogSettings.of(Config(shards=1, data_dir=Path("/data")))
    assert settings.options() == {"type": "sql", "uri": "sqlite:////data/iceberg.sqlite"}
    assert not settings.is_rest


def test_a_rest_catalog_gets_its_warehouse_and_what_is_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "catalog.toml"
    file.write_text('token = "secret"\n')
    settings = CatalogSettings("https://catalog", "lake", str(file))
    wanted = {"type": "rest", "uri": "https://catalog", "warehouse": "lake", "token": "secret"}
    assert settings.options() == wanted


@pytest.mark.parametrize("text", [None, "token ="])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "catalog.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(LakeError, match=r"catalog\.toml cannot be read"):
        CatalogSettings("https://catalog", properties=str(file)).options()
