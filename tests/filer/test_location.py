"""Which store the settings mean, and whose keys it is given."""

from pathlib import Path
from typing import Any

import pytest

from smq.filer.local import LocalStore
from smq.filer.location import Location
from smq.filer.s3 import S3Store
from smq.model.config import Config
from smq.model.errors import StoreError
from tests.app.fake_broker import config_for

FILE = """
[default]
aws_access_key_id = one
aws_secret_access_key = a%b

[other]
aws_access_key_id = two
aws_secret_access_key = secret
aws_session_token = token
"""


def config_of(directory: Path, **settings: Any) -> Config:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return config_for(directory, 1, **named)


def test_a_directory_is_a_local_store(tmp_path: Path) -> None:
    location = Location.of(config_of(tmp_path, filer_root=str(tmp_path / "files")))
    store = location.open()
    assert isinstance(store, LocalStore)
    assert store.root == tmp_path / "files"
    assert location.problems() == []


@pytest.mark.parametrize("below", [".", "files", "files/deep"])
def test_a_file_where_the_directory_should_be_is_named(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    [problem] = Location(str(file / below)).problems()
    assert problem.startswith(f"filer.root: {file} is not a directory; move it away")
    assert Location(str(tmp_path / below)).problems() == []


def test_a_place_that_cannot_be_looked_at_is_said_so(tmp_path: Path) -> None:
    [problem] = Location(str(tmp_path / ("n" * 300))).problems()
    assert problem.endswith("cannot be used: File name too long; choose another directory")


def test_a_bucket_is_an_s3_store_and_its_prefix_stays_within(tmp_path: Path) -> None:
    settings = {"filer_root": "s3://bucket/some/prefix", "filer_s3_endpoint": "http://127.0.0.1:9"}
    store = Location.of(config_of(tmp_path, **settings)).open({"AWS_ACCESS_KEY_ID": "x"})
    assert isinstance(store, S3Store)
    assert store.name == "s3://bucket/some/prefix"


def test_the_settings_win_over_the_environment(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(FILE)
    location = Location("s3://bucket", "http://here:1", "eu-west-1", str(keys))
    assert location.access({"AWS_ACCESS_KEY_ID": "x", "AWS_ENDPOINT_URL": "http://there"}) == {
        "endpoint": "http://here:1",
        "region": "eu-west-1",
        "access_key_id": "one",
        "secret_access_key": "a%b",
    }


def test_keys_come_from_the_profile_that_is_chosen(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(FILE)
    environment = {"AWS_SHARED_CREDENTIALS_FILE": str(keys), "AWS_PROFILE": "other"}
    assert Location("s3://bucket").access(environment) == {
        "access_key_id": "two",
        "secret_access_key": "secret",
        "session_token": "token",
    }
    assert Location("s3://bucket").access({**environment, "AWS_ACCESS_KEY_ID": "own"}) == {}


def test_without_a_file_the_library_looks_for_keys_itself(tmp_path: Path) -> None:
    environment = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}
    assert Location("s3://bucket").access(environment) == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "profile default has no 'default'"),
        ("[default]\naws_access_key_id = x\n", "has no 'aws_secret_access_key'"),
        ("no file of this kind", "it cannot be read"),
    ],
)
def test_a_credentials_file_without_keys_is_refused(
    tmp_path: Path, text: str, complaint: str
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(text)
    location = Location("s3://bucket", s3_credentials=str(keys))
    with pytest.raises(StoreError, match=complaint):
        location.open({})
    [problem] = location.problems({})
    assert problem.startswith(f"filer.s3.credentials: {keys}: ")


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="it cannot be read"):
        Location("s3://bucket", s3_credentials=str(tmp_path / "none")).open({})


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smq.filer.location.find_spec", lambda _: None)
    location = Location("s3://bucket")
    assert location.problems() == [
        "filer.root: s3://bucket needs obstore; `pip install 'smq-broker[s3]'`"
    ]
    monkeypatch.setattr("smq.filer.location.find_spec", lambda name: name == "obstore" or None)
    with pytest.raises(StoreError, match="botocore"):
        location.open({})


@pytest.mark.parametrize(
    ("own", "environment"),
    [
        ("http://127.0.0.1:9/", {}),
        ("", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}),
        ("", {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9/"}),
    ],
)
def test_an_endpoint_that_the_client_has_configured_is_used(
    own: str, environment: dict[str, str]
) -> None:
    told = {"filer.root": "s3://bucket", "filer.s3.endpoint": "http://127.0.0.1:9"}
    assert Location.named_by(told, own, environment).s3_endpoint == "http://127.0.0.1:9"


def test_no_request_is_signed_for_an_endpoint_that_only_a_broker_names() -> None:
    """Door fault 12."""
    told = {"filer.root": "s3://bucket", "filer.s3.endpoint": "http://evil.example"}
    for own in ("", "http://127.0.0.1:9"):
        with pytest.raises(StoreError, match=r"set AWS_ENDPOINT_URL=http://evil\.example"):
            Location.named_by(told, own, {})
    assert not Location.named_by(told | {"filer.root": "/srv"}, "", {}).is_s3
    assert Location.named_by({"filer.root": "s3://bucket"}, "", {}).s3_endpoint == ""
