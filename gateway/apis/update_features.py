"""UpdateFeatures (key 57), versions 0-2 (KIP-584).

The only feature, `transaction.version`, has the level that all nodes have: an update to it changes
nothing. INVALID_UPDATE_VERSION for the first that names anything else, and nothing is updated.
Version 2 no longer lists the features of a request that succeeds.
"""

from gateway.apis.api_versions import TRANSACTION_FEATURE, TRANSACTION_LEVEL
from gateway.context import ShardContext
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UNCHANGED = "The feature has this level."


def handle(request: UpdateFeaturesRequest, _context: ShardContext) -> UpdateFeaturesResponse:
    """Refuse every update that would change something; none is fine."""
    for update in request.feature_updates:
        if reason := _refusal(update.feature, update.max_version_level):
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message=f"Invalid update: {reason}.",
            )
    names = {update.feature for update in request.feature_updates}
    results = [UpdatableFeatureResult(feature=name, error_message=UNCHANGED) for name in names]
    return UpdateFeaturesResponse(error_message=None, results=results)


def refuse(_request: UpdateFeaturesRequest, why: BrokerError) -> UpdateFeaturesResponse:
    """Update nothing."""
    return UpdateFeaturesResponse(error_code=why.code, error_message=why.message)


def _refusal(feature: str, level: int) -> str | None:
    if feature != TRANSACTION_FEATURE:
        return f"there is no feature {feature!r}"
    if level != TRANSACTION_LEVEL:
        return f"{feature} has level {TRANSACTION_LEVEL}, and no other here"
    return None
