"""UpdateFeatures: the one feature keeps its level."""

from pathlib import Path

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic

E = ErrorCode


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(("names", "error"), [((), E.NONE), (("a", "b"), E.INVALID_UPDATE_VERSION)])
def test_an_update_of_an_unknown_feature_is_refused(
    tmp_path: Path, version: int, names: tuple[str, ...], error: ErrorCode
) -> None:
    updates = [FeatureUpdateKey(feature=name, max_version_level=1) for name in names]
    request = UpdateFeaturesRequest(feature_updates=updates)
    answer = ShardBench(tmp_path, topic("t")).ask("UpdateFeatures", version, request)
    assert answer.error_code == error
    assert (answer.error_message or "").endswith("'a'." if names else "")


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("levels", "error"),
    [((2,), E.NONE), ((1,), E.INVALID_UPDATE_VERSION), ((2, 3), E.INVALID_UPDATE_VERSION)],
)
def test_transaction_version_keeps_its_level(
    tmp_path: Path, version: int, levels: tuple[int, ...], error: ErrorCode
) -> None:
    updates = [
        FeatureUpdateKey(feature="transaction.version", max_version_level=level) for level in levels
    ]
    request = UpdateFeaturesRequest(feature_updates=updates)
    answer = ShardBench(tmp_path, topic("t")).ask("UpdateFeatures", version, request)
    assert answer.error_code == error
    assert ("has level 2" in (answer.error_message or "")) is (error is not E.NONE)
