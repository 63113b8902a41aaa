"""ApiVersions (key 18), versions 0-4.

- Names every API of the table with its versions, the same from every node.
- An unsupported version is answered in version 0 with UNSUPPORTED_VERSION and the whole list, so
  that the client can try again (KIP-511); the response header is always version 0.
- From 3 on the client names its software; a name that is none is INVALID_REQUEST.
- Produce is advertised from 0 although 0-2 are refused: librdkafka before 2.11.1 sends gzip, snappy
  and lz4 batches uncompressed otherwise (KAFKA-18659).
- No tagged field is written with its default: librdkafka before 2.2 cannot skip one.

Left out: features: there are none to name yet.
"""

import re

from gateway.context import ShardContext
from smq.model.errors import ErrorCode
from smq.wire.generated.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

SOFTWARE_FROM = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def answer(advertised: list[tuple[int, int, int]], error: ErrorCode) -> ApiVersionsResponse:
    """The list of (key, first version, last version) as a response."""
    return ApiVersionsResponse(
        error_code=error,
        api_keys=[
            ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, first, last in advertised
        ],
    )


def handle(
    request: ApiVersionsRequest, context: ShardContext, advertised: list[tuple[int, int, int]]
) -> ApiVersionsResponse:
    """The list, or an error alone when the client's software has an impossible name."""
    if context.header.api_version >= SOFTWARE_FROM and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return answer([], ErrorCode.INVALID_REQUEST)
    return answer(advertised, ErrorCode.NONE)
