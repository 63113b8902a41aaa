"""UpdateFeatures (key 57), versions 0-2 (KIP-584).

No feature has levels to choose from: INVALID_UPDATE_VERSION for the first that is named, and
nothing is updated.
"""

from gateway.context import ShardContext
from smq.model.errors import ErrorCode
from smq.wire.generated.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


def handle(request: UpdateFeaturesRequest, _context: ShardContext) -> UpdateFeaturesResponse:
    """Refuse every update; none is fine."""
    for update in request.feature_updates:
        return UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_UPDATE_VERSION,
            error_message=f"Invalid update: there is no feature {update.feature!r}.",
        )
    return UpdateFeaturesResponse(error_message=None)
