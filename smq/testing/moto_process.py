"""moto's server, with two bugs of multipart uploads fixed. moto invents an upload's start time, and
crashes on a part for an upload that no longer exists.
"""

import re
import sys
from datetime import UTC, datetime
from typing import Any

from moto.s3.exceptions import NoSuchUpload
from moto.s3.models import S3Backend
from moto.s3.responses import S3Response
from moto.server import main

_UPLOAD = re.compile(r"<Upload>.*?</Upload>", re.DOTALL)
_ID = re.compile(r"<UploadId>(\w+)</UploadId>")
_BEGUN = re.compile(r"(<Initiated>)[^<]*")


def serve(arguments: list[str]) -> None:
    """Serve as `moto_server` does."""
    _date_uploads()
    _miss_uploads()
    main(arguments)


def _date_uploads() -> None:
    begun: dict[str, str] = {}
    create, listing = S3Backend.create_multipart_upload, S3Response.list_multipart_uploads

    def dated_create(backend: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401  (moto's)
        upload = create(backend, *given, **named)
        begun[upload.id] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return upload

    def dated(upload: re.Match[str]) -> str:
        found = _ID.search(upload[0])
        assert found is not None
        return _BEGUN.sub(rf"\g<1>{begun[found[1]]}", upload[0])

    def dated_listing(response: Any) -> Any:  # noqa: ANN401  (moto's)
        status, headers, body = listing(response)
        assert isinstance(body, str)
        return status, headers, _UPLOAD.sub(dated, body)

    S3Backend.create_multipart_upload = dated_create  # type: ignore[method-assign, assignment]
    S3Response.list_multipart_uploads = dated_listing  # type: ignore[method-assign, assignment]


def _miss_uploads() -> None:
    upload_part = S3Backend.upload_part

    def checked_part(backend: Any, bucket: str, upload_id: str, *of: Any) -> Any:  # noqa: ANN401
        if upload_id not in backend.get_bucket(bucket).multiparts:
            raise NoSuchUpload(upload_id=upload_id)
        return upload_part(backend, bucket, upload_id, *of)

    S3Backend.upload_part = checked_part  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    serve(sys.argv[1:])
