"""Long objects on S3: multipart uploads, which a server keeps until they are completed or aborted.

    begin  →  parts, several at once, in any order  →  complete, on condition that the key is free

The object appears with the last step. Parts outlive their sender: an interrupted upload is found
again (`unfinished`) with its parts. A part's name is the MD5 of its bytes, so only missing parts
are sent. While the server is unreachable a part is sent again, until nothing has succeeded for as
long as the upload's patience lasts.

Uses botocore: obstore, used for all other requests, cannot complete an upload conditionally or list
parts. The first long object loads botocore; importing this module is cheap.
"""

import os
import re
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import md5
from threading import Event
from time import monotonic  # noqa: TID251  (How long a server is silent; threads of its own wait.)
from typing import Any, NamedTuple, Self, TypedDict, TypeVar

from smq.filer.store import UNFINISHED_MAX, Data
from smq.model.errors import AlreadyExists, StoreError, Unavailable

MiB = 1024 * 1024
# S3's minimum is 5 MiB; on a slow line a part must still take less than REQUEST_WAIT_S.
PART_BYTES = 8 * MiB
PARTS_MAX = 10_000  # S3's bound.
OBJECT_BYTES_MAX = 5 * 1024 * 1024 * MiB  # The limit of every server of this protocol.
CONNECT_WAIT_S = 3
REQUEST_WAIT_S = 30  # Of each receive, for servers that hang.
RETRY_PAUSE_S, RETRY_PAUSE_S_MAX = 0.1, 5.0
REGION_DEFAULT = "us-east-1"
PASSING_CODES = frozenset({"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException"})

T = TypeVar("T")


class Access(TypedDict, total=False):
    """How to reach a bucket, as obstore names it; the AWS environment gives what is missing."""

    endpoint: str
    region: str
    access_key_id: str
    secret_access_key: str
    session_token: str


class Away(Unavailable):
    """The server is unreachable or too busy: the same request may succeed soon."""


class UploadLost(Unavailable):
    """The upload, or one of its parts, no longer exists."""


class Unfinished(NamedTuple):
    """An upload that is neither completed nor aborted."""

    key: str
    id: str
    begun_ms: int


class UploadedPart(NamedTuple):
    """A part that the server has."""

    tag: str
    """The MD5 of its bytes, unless the server encrypts them with a key of its own."""
    sent_ms: int


class Uploads:
    """The multipart uploads of a bucket to keys that start with a prefix."""

    def __init__(self, bucket: str, prefix: str, access: Access) -> None:
        self.name = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket, self._access = bucket, access
        self._prefix = f"{prefix}/" if prefix else ""

    def begin(self, key: str) -> Unfinished:
        """A new upload."""
        return Unfinished(key, self._ask("create_multipart_upload", key, "UploadId"), 0)

    def unfinished(self, prefix: str = "") -> Iterator[Unfinished]:
        """Uploads to keys that start with `prefix`."""
        pages = self._pages("list_multipart_uploads", prefix, Prefix=self._prefix + prefix)
        for found in (each for page in pages for each in page.get("Uploads", [])):
            key = found["Key"].removeprefix(self._prefix)
            yield Unfinished(key, found["UploadId"], _ms(found["Initiated"]))

    def parts(self, upload: Unfinished) -> dict[int, UploadedPart]:
        """The parts that the server has, by number. Raises UploadLost."""
        pages = self._pages("list_parts", upload.key, **self._named(upload.key), UploadId=upload.id)
        return {
            part["PartNumber"]: UploadedPart(part["ETag"].strip('"'), _ms(part["LastModified"]))
            for page in pages
            for part in page.get("Parts", [])
        }

    def send(self, upload: Unfinished, number: int, data: Data) -> str:
        """Send a part; returns its ETag. Raises Away, UploadLost."""
        check = b64encode(_md5(data)).decode()
        tag = self._ask(
            "upload_part",
            upload.key,
            "ETag",
            UploadId=upload.id,
            PartNumber=number,
            Body=data,
            ContentMD5=check,
        )
        return tag.strip('"')

    def complete(self, upload: Unfinished, tags: list[str], *, create: bool) -> None:
        """Complete the upload from parts of these ETags. Raises AlreadyExists, Away, UploadLost."""
        named = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        condition = {"IfNoneMatch": "*"} if create else {}
        self._ask(
            "complete_multipart_upload",
            upload.key,
            "ETag",
            UploadId=upload.id,
            MultipartUpload={"Parts": named},
            **condition,
        )

    def abort(self, upload: Unfinished) -> None:
        """Abort the upload; the server deletes its parts."""
        with suppress(UploadLost):
            self._ask("abort_multipart_upload", upload.key, UploadId=upload.id)

    def sweep(self, idle: Mapping[str, int]) -> dict[str, int]:
        """Abort the uploads in `idle` without a part since; returns the others, and when each
        got its last part, by the server's clock."""
        left: dict[str, int] = {}
        for upload in self.unfinished():
            with suppress(UploadLost):
                sent = [part.sent_ms for part in self.parts(upload).values()]
                touched_ms = max([upload.begun_ms, *sent])
                if idle.get(upload.id) == touched_ms:
                    self.abort(upload)
                elif len(left) < UNFINISHED_MAX:
                    left[upload.id] = touched_ms
        return left

    def _named(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _ask(self, operation: str, key: str, field: str = "", **arguments: Any) -> str:  # noqa: ANN401
        """Do a request; returns a field of the answer, if one is named."""
        with self._failures(key):
            answer = getattr(self._client, operation)(**self._named(key), **arguments)
        return str(self._whole(answer, key, field)[field]) if field else ""

    def _pages(self, operation: str, key: str, **arguments: Any) -> Iterator[Any]:  # noqa: ANN401
        with self._failures(key):
            pages = self._client.get_paginator(operation)
            for page in pages.paginate(**{"Bucket": self._bucket, **arguments}):
                yield self._whole(page, key, "Bucket")

    def _whole(self, answer: Any, key: str, field: str) -> Any:  # noqa: ANN401  (its words)
        """The answer, if it has the field. Raises Away: botocore ignores that an answer is cut."""
        if field not in answer:
            raise Away(key, f"{self.name}: an answer was cut short")
        return answer

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401  (Made when it runs.)
        from botocore.config import Config  # noqa: PLC0415  (It takes its time.)
        from botocore.session import Session  # noqa: PLC0415

        access, given = self._access, dict[str, Any]()
        if "access_key_id" in access:  # Explicit keys: no profile is read.
            given = {"session_vars": {"profile": (None, None, None, None)}}
        session = Session(**given)
        with self._failures(self.name):
            return session.create_client(
                "s3",
                region_name=access.get("region")
                or os.environ.get("AWS_REGION")
                or session.get_config_variable("region")
                or REGION_DEFAULT,
                endpoint_url=access.get("endpoint"),
                aws_access_key_id=access.get("access_key_id"),
                aws_secret_access_key=access.get("secret_access_key"),
                aws_session_token=access.get("session_token"),
                config=Config(
                    connect_timeout=CONNECT_WAIT_S,
                    read_timeout=REQUEST_WAIT_S,
                    retries={"total_max_attempts": 1},  # Patience repeats requests.
                    s3={"addressing_style": "path"},  # As obstore does.
                    # Servers other than Amazon's lack these; a part has its MD5.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                    parameter_validation=False,  # It accepts bytes only, though any buffer works.
                ),
            )

    @contextmanager
    def _failures(self, key: str) -> Iterator[None]:
        """Turns errors of the library into StoreError."""
        from botocore import exceptions  # noqa: PLC0415
        from botocore.parsers import ResponseParserError  # noqa: PLC0415

        try:
            yield
        except exceptions.ClientError as reason:
            raise self._failure(key, reason) from reason
        except exceptions.NoCredentialsError as reason:
            raise Unavailable(key, f"{self.name}: no keys were found") from reason
        except (
            exceptions.HTTPClientError,
            exceptions.ConnectionError,
            ResponseParserError,
        ) as reason:
            raise Away(key, f"{self.name}: {without_paths(str(reason))}") from reason
        except exceptions.BotoCoreError as reason:
            raise Unavailable(key, f"{self.name}: {without_paths(str(reason))}") from reason

    def _failure(self, key: str, reason: Any) -> StoreError:  # noqa: ANN401  (a ClientError)
        code = reason.response["Error"]["Code"]
        status = reason.response["ResponseMetadata"]["HTTPStatusCode"]
        if status == 412:
            return AlreadyExists(key, "there is an object already")
        if code in {"NoSuchUpload", "InvalidPart"}:
            return UploadLost(
                key, f"{self.name}: another process ended the unfinished upload ({code})"
            )
        if code == "NoSuchBucket":
            return Unavailable(key, f"there is no bucket {self.name}")
        if status >= 500 or status == 429 or code in PASSING_CODES:
            return Away(key, f"{self.name}: {without_paths(str(reason))}")
        return Unavailable(key, f"{self.name}: {without_paths(str(reason))}")


class Patience:
    """Repeats requests while the server is away, until nothing has succeeded for too long."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._heard_s = seconds, monotonic()
        self._over = Event()
        self.misses = 0  # Requests whose outcome is unknown.

    def ask(self, call: Callable[[], T]) -> T:
        """The result of `call`, repeated while it raises Away; other exceptions pass."""
        asked_s, pause_s = monotonic(), RETRY_PAUSE_S
        while True:
            try:
                answer = call()
            except Away:
                self.misses += 1
                silent_s = monotonic() - max(asked_s, self._heard_s)
                if silent_s > self._seconds or self._over.wait(pause_s):
                    raise
                pause_s = min(2 * pause_s, RETRY_PAUSE_S_MAX)
            else:
                self._heard_s = monotonic()
                return answer

    def end(self) -> None:
        """Stop waiting for answers."""
        self._over.set()


class PartSending:
    """An upload that sends its parts in threads. `send` blocks while all threads are busy."""

    def __init__(
        self, uploads: Uploads, upload: Unfinished, patience: Patience, *, parts_at_once: int
    ) -> None:
        self.upload = upload
        self._uploads, self._patience, self._at_once = uploads, patience, parts_at_once
        self._threads = ThreadPoolExecutor(parts_at_once, "s3-part")
        self._on_the_way: deque[Future[str]] = deque()
        self._tags: list[str | Future[str]] = []

    def __len__(self) -> int:
        """How many parts it has been given."""
        return len(self._tags)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop sending. No thread reads the parts' memory after this."""
        self._patience.end()
        self._threads.shutdown(cancel_futures=True)

    def has(self, tag: str) -> None:
        """Skip the next part: the server has it."""
        self._tags.append(tag)

    def send(self, data: Data) -> None:
        """Send the next part in a thread. Its memory must not change. Raises StoreError."""
        if len(self._on_the_way) == self._at_once:
            self._on_the_way.popleft().result()
        number = len(self._tags) + 1

        def sent() -> str:
            return self._patience.ask(lambda: self._uploads.send(self.upload, number, data))

        self._on_the_way.append(self._threads.submit(sent))
        self._tags.append(self._on_the_way[-1])

    def complete(self, version: Callable[[], str], *, create: bool) -> None:
        """Wait for all parts and complete the upload. `version` asks for that of the object.

        Raises AlreadyExists, UploadLost, Unavailable.
        """
        tags = [tag if isinstance(tag, str) else tag.result() for tag in self._tags]
        misses = self._patience.misses
        try:
            self._patience.ask(lambda: self._uploads.complete(self.upload, tags, create=create))
        except (UploadLost, AlreadyExists):
            # The answer that was lost may have been a success.
            if self._patience.misses == misses or version() != version_of(tags):
                raise


def part_bytes_for(length: int) -> int:
    """The part size for an object's length: the same each time, so a resume finds its parts."""
    return max(PART_BYTES, -(-length // PARTS_MAX // MiB) * MiB)


def md5_of(data: Data) -> str:
    """The ETag of a part with these bytes on a server that does not encrypt it."""
    return _md5(data).hex()


def version_of(tags: list[str]) -> str | None:
    """The ETag of an object of these parts; None if theirs are not MD5s."""
    try:
        together = _md5(b"".join(bytes.fromhex(tag) for tag in tags))
    except ValueError:
        return None
    return f'"{together.hex()}-{len(tags)}"'


def without_paths(text: str) -> str:
    """An error message of a library with its URLs cut to the server."""
    return re.sub(r"""(https?://[^/\s"']+)[^\s"']*""", r"\1", text)


def _md5(data: Data) -> bytes:
    return md5(data, usedforsecurity=False).digest()


def _ms(moment: Any) -> int:  # noqa: ANN401  (a datetime)
    return int(moment.timestamp() * 1000)
