"""AddOffsetsToTxn: a group joins a transaction."""

import pytest

from smq.model.errors import ErrorCode
from tests.gateway.apis.transactions.producers import add_group, begin
from tests.gateway.coordinator_bench import CoordinatorBench

E = ErrorCode


@pytest.mark.parametrize("version", range(5))
def test_a_group_joins(bench: CoordinatorBench, version: int) -> None:
    producer = begin(bench)
    assert add_group(bench, producer, "g", version) == E.NONE
    found = bench.coordinator.transactions.get("mine")
    assert found is not None
    assert (found.state, set(found.groups)) == ("Ongoing", {"g"})
    other = producer._replace(id=producer.id + 1)
    assert add_group(bench, other, "g", version) == E.INVALID_PRODUCER_ID_MAPPING
    fenced = E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED
    assert add_group(bench, producer._replace(epoch=7), "g", version) == fenced
