"""The filer's location, from the settings, and how to open its store.

The supervisor makes locations: that starts nothing. Opening one on S3 starts threads, so only
processes that never fork open one.
"""

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from smq.filer.local import LocalStore
from smq.filer.store import Store
from smq.model.config import Config
from smq.model.errors import StoreError
from smq.model.named_files import read_named

if TYPE_CHECKING:
    from smq.filer.s3_uploads import Access

S3_SCHEME = "s3://"
CREDENTIALS_FILE = "~/.aws/credentials"
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
# If one is set, the library finds keys by itself. These win over the default credentials file.
OWN_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


class Location(NamedTuple):
    """A directory or a bucket; "" leaves a field to the AWS environment."""

    root: str
    s3_endpoint: str = ""
    s3_region: str = ""
    s3_credentials: str = ""

    @classmethod
    def of(cls, config: Config) -> "Location":
        """The location that a broker's settings name."""
        return cls(
            config.filer_root,
            config.filer_s3_endpoint,
            config.filer_s3_region,
            config.filer_s3_credentials,
        )

    @classmethod
    def named_by(
        cls,
        settings: Mapping[str, str],
        own_endpoint: str = "",
        environment: Mapping[str, str] = os.environ,
    ) -> "Location":
        """The location that a broker names to a client, by the names of its settings.

        Requests to an endpoint are signed with the client's keys, so the client must have
        configured it: `own_endpoint`, or as the AWS tools do. Raises StoreError.
        """
        endpoint = settings.get("filer.s3.endpoint", "")
        found = cls(settings["filer.root"], endpoint, settings.get("filer.s3.region", ""))
        own = {own_endpoint, *(environment.get(name, "") for name in ENDPOINTS)}
        if found.is_s3 and endpoint and endpoint.rstrip("/") not in {e.rstrip("/") for e in own}:
            raise StoreError(
                found.root,
                f"the broker names the endpoint {endpoint}, where requests would be signed with "
                f"your keys; if it is yours, set AWS_ENDPOINT_URL={endpoint}",
            )
        return found

    @property
    def is_s3(self) -> bool:
        return self.root.startswith(S3_SCHEME)

    def problems(self, environment: Mapping[str, str] = os.environ) -> list[str]:
        """Permanent problems of this location, as sentences."""
        if not self.is_s3:
            return list(_in_the_way(Path(self.root)))
        for library in ("obstore", "botocore"):
            if find_spec(library) is None:
                return [f"filer.root: {self.root} needs {library}; `pip install 'smq-broker[s3]'`"]
        try:
            self.access(environment)
        except StoreError as reason:
            return [f"filer.s3.credentials: {reason}"]
        return []

    def open(
        self,
        environment: Mapping[str, str] = os.environ,
        *,
        reserve_bytes: int = 0,
        drops_pages: bool = False,
    ) -> Store:
        """Open the store. Raises StoreError with a sentence, but not because it is down.

        `reserve_bytes`: free space that writes leave for the log, where both share a disk;
        `drops_pages`: what is written does not stay in its page cache either.
        """
        if not self.is_s3:
            return LocalStore(Path(self.root), reserve_bytes, drops_pages=drops_pages)
        if problems := self.problems(environment):
            raise StoreError(self.root, problems[0])
        from smq.filer.s3 import S3Store  # noqa: PLC0415  (Most filers are directories.)

        bucket, _, prefix = self.root.removeprefix(S3_SCHEME).partition("/")
        return S3Store(bucket, prefix, self.access(environment))

    def access(self, environment: Mapping[str, str]) -> "Access":
        """How to reach the bucket: the settings, and keys from a file."""
        access: Access = {}
        if self.s3_endpoint:
            access["endpoint"] = self.s3_endpoint
        if self.s3_region:
            access["region"] = self.s3_region
        if self.s3_credentials:
            access.update(_keys_in(Path(self.s3_credentials).expanduser(), environment))
        elif not any(environment.get(name) for name in OWN_CREDENTIALS):
            named = environment.get("AWS_SHARED_CREDENTIALS_FILE") or CREDENTIALS_FILE
            if (path := Path(named).expanduser()).exists():
                access.update(_keys_in(path, environment))
        return access


def _in_the_way(root: Path) -> Iterator[str]:
    """Why a directory cannot be created or used."""
    try:
        nearest = next(each for each in (root, *root.parents) if each.exists())
        if not nearest.is_dir():
            yield (
                f"filer.root: {nearest} is not a directory; move it away, or choose another "
                "place with --filer-root"
            )
    except OSError as reason:
        yield f"filer.root: {root} cannot be used: {reason.strerror}; choose another directory"


def _keys_in(path: Path, environment: Mapping[str, str]) -> "Access":
    """The keys of the selected profile, from a credentials file of the AWS tools."""
    import configparser  # noqa: PLC0415  (as above)

    profile = environment.get("AWS_PROFILE") or "default"
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(read_named(path).decode())
        section = parser[profile]
        access: Access = {
            "access_key_id": section["aws_access_key_id"],
            "secret_access_key": section["aws_secret_access_key"],
        }
    except (OSError, UnicodeDecodeError, configparser.Error) as reason:
        raise StoreError(str(path), f"it cannot be read: {reason}") from reason
    except KeyError as missing:
        raise StoreError(str(path), f"profile {profile} has no {missing}") from None
    if token := section.get("aws_session_token"):
        access["session_token"] = token
    return access
