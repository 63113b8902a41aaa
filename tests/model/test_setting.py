"""One setting by itself; tests/model/test_config.py has the texts and bounds of all."""

import pytest

from smq.model.config import SETTINGS
from smq.model.setting import PathOrUrl, value_of

ROOT = SETTINGS["filer.root"]


def test_the_names_of_a_setting_outside() -> None:
    assert (ROOT.key, ROOT.option, ROOT.variable) == (
        "filer_root",
        "--filer-root",
        "SMQ_FILER_ROOT",
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket-1.x/a/b c/", "s3://bucket-1.x/a/b c"),
        ("/var/filer", "/var/filer"),
    ],
)
def test_a_place_is_a_directory_or_a_bucket(given: str, expected: str) -> None:
    found = value_of(ROOT, given)
    assert found == expected
    assert isinstance(found, PathOrUrl)


@pytest.mark.parametrize(
    "given", ["s3://", "s3://Bucket", "s3://b", "s3://bucket//x", "gs://bucket", "", 7]
)
def test_a_value_that_is_neither_directory_nor_bucket_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match=r"is not a directory or|is not a path"):
        value_of(ROOT, given)
