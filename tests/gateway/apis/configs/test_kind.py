"""What every type of resource has in common."""

import pytest

from gateway.apis.configs.kind import ResourceKind
from gateway.apis.configs.kinds import KINDS, Resource
from smq.model.errors import ErrorCode
from tests.gateway.apis.configs.config_asker import SET, change
from tests.gateway.coordinator_bench import CoordinatorBench


@pytest.mark.parametrize("number", list(KINDS))
def test_a_resource_with_an_impossible_name_is_refused(
    bench: CoordinatorBench, number: int
) -> None:
    assert isinstance(KINDS[number], ResourceKind)
    name = "" if number == Resource.GROUP else "no such name"  # A group may have any other.
    code, sentence = change(bench, number, name, ("seal.ms", SET, "5"))
    assert code in {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert sentence
