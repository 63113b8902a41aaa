"""FindCoordinator names the same node for a key, at every node and for any number of keys."""

import pytest

from gateway.apis.find_coordinator import coordinator_of
from smq.model.errors import ErrorCode
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from tests.gateway.coordinator_bench import NODES, CoordinatorBench

E = ErrorCode
GROUPS = [f"group-{number}" for number in range(50)]


@pytest.mark.parametrize("version", range(4))
def test_a_key_has_the_same_coordinator_at_every_node(
    bench: CoordinatorBench, version: int
) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    answers = [bench.ask("FindCoordinator", version, request, node_id=node) for node in (1, 2)]
    assert answers[0] == answers[1]
    node = coordinator_of("g", NODES)
    [found] = answers[0].coordinators
    assert found.error_code == E.NONE
    assert (found.node_id, found.host, found.port) == (node.id, node.host, node.port)


@pytest.mark.parametrize("version", range(4, 7))
def test_several_keys_have_an_answer_each(bench: CoordinatorBench, version: int) -> None:
    request = FindCoordinatorRequest(coordinator_keys=GROUPS)
    found = bench.ask("FindCoordinator", version, request).coordinators
    assert [each.key for each in found] == GROUPS
    assert {each.node_id for each in found} == {1, 2}
    assert {each.error_code for each in found} == {E.NONE}


@pytest.mark.parametrize(
    ("key_type", "error"),
    [(2, E.INVALID_REQUEST), (7, E.INVALID_REQUEST)],
)
@pytest.mark.parametrize("version", [1, 6])
def test_other_kinds_of_keys_have_no_coordinator(
    bench: CoordinatorBench, version: int, key_type: int, error: ErrorCode
) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k"])
    [found] = bench.ask("FindCoordinator", version, request).coordinators
    assert (found.error_code, found.node_id, found.host, found.port) == (error, -1, "", -1)
    assert bool(found.error_message) == (key_type == 7 or version < 4), "as in Kafka"


@pytest.mark.parametrize("version", [1, 6])
def test_a_transactional_id_has_the_coordinator_of_its_name(
    bench: CoordinatorBench, version: int
) -> None:
    nodes = set()
    for key in ("a", "b", "c", ""):
        asked = FindCoordinatorRequest(key_type=1, coordinator_keys=[key])
        [found] = bench.ask("FindCoordinator", version, asked).coordinators
        assert found.error_code == E.NONE
        nodes.add(found.node_id)
    assert nodes == {1, 2}
