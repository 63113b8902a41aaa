"""ApiVersions (key 18), versions 0-4.

- Names every API of the table with its versions, the same from every node; those of client metrics
  only while a subscription exists.
- An unsupported version is answered in version 0 with UNSUPPORTED_VERSION and the whole list, so
  that the client can try again (KIP-511); the response header is always version 0.
- From 3 on the client names its software; a malformed name is INVALID_REQUEST.
- Produce is advertised from 0 although 0-2 are refused: librdkafka before 2.11.1 sends gzip, snappy
  and lz4 batches uncompressed otherwise (KAFKA-18659).
- No tagged field is written with its default: librdkafka before 2.2 cannot skip one.
- From 3 on features: transaction.version 2 (KIP-890), by which clients choose how to end one. Below
  4, features whose minimum level is 0 are left out: clients cannot parse them.
"""

import re
from collections.abc import Iterable

from gateway.apis.api import Api
from gateway.context import ShardContext
from smq.model.errors import ErrorCode
from smq.shard.shard import Shard
from smq.wire.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from smq.wire.legacy.versions import OLD_KEYS

SOFTWARE_FROM = 3
ZERO_LEVELS_FROM = 4
TRANSACTION_FEATURE, TRANSACTION_LEVEL = "transaction.version", 2
CLIENT_METRICS = {"GetTelemetrySubscriptions", "PushTelemetry"}
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def advertised(apis: Iterable[Api], shard: Shard) -> list[tuple[int, int, int]]:
    """Each key with its first and last version.

    With `legacy.formats` also versions that Kafka 4 dropped. Client metrics only while somebody
    wants some: a client that finds them without a subscription says so in its log.
    """
    legacy, wanted = shard.config.legacy_formats, shard.client_metrics.are_wanted
    rows = [api.advertised for api in apis if wanted or api.name not in CLIENT_METRICS]
    return [(key, 0 if legacy and key in OLD_KEYS else first, last) for key, first, last in rows]


def answer(
    advertised: list[tuple[int, int, int]], error: ErrorCode, *, says_all: bool = True
) -> ApiVersionsResponse:
    """The list of (key, first version, last version) as a response, and the features."""
    name, level = TRANSACTION_FEATURE, TRANSACTION_LEVEL
    supported = [SupportedFeatureKey(name=name, max_version=level)] if says_all else []
    finalized = FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
    return ApiVersionsResponse(
        error_code=error,
        supported_features=supported,
        finalized_features_epoch=0,
        finalized_features=[finalized],
        api_keys=[
            ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, first, last in advertised
        ],
    )


def handle(
    request: ApiVersionsRequest, context: ShardContext, advertised: list[tuple[int, int, int]]
) -> ApiVersionsResponse:
    """The list, or an error alone when the client's software has an impossible name."""
    if context.header.api_version >= SOFTWARE_FROM:
        software = request.client_software_name, request.client_software_version
        if not all(map(_SOFTWARE.fullmatch, software)):
            return answer([], ErrorCode.INVALID_REQUEST)
        context.caller.name_software(*software)
    says_all = context.header.api_version >= ZERO_LEVELS_FROM
    return answer(advertised, ErrorCode.NONE, says_all=says_all)
