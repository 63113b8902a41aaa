"""UpdateFeatures: there is no feature to update."""

from pathlib import Path

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic

E = ErrorCode


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(("names", "error"), [((), E.NONE), (("a", "b"), E.INVALID_UPDATE_VERSION)])
def test_every_update_is_refused(
    tmp_path: Path, version: int, names: tuple[str, ...], error: ErrorCode
) -> None:
    updates = [FeatureUpdateKey(feature=name, max_version_level=1) for name in names]
    request = UpdateFeaturesRequest(feature_updates=updates)
    answer = ShardBench(tmp_path, topic("t")).ask("UpdateFeatures", version, request)
    assert answer.error_code == error
    assert (answer.error_message or "").endswith("'a'." if names else "")
