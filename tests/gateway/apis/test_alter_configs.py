"""AlterConfigs and IncrementalAlterConfigs: a topic's own configs are replaced or changed."""

import pytest

from gateway.apis.alter_configs import Operation
from gateway.apis.configs.kinds import Resource
from smq.coordinator import config_room
from smq.coordinator.topics import NewTopic
from smq.model.errors import ErrorCode
from smq.wire.generated.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from smq.wire.generated.incremental_alter_configs import (
    AlterableConfig as IncrementalConfig,
    AlterConfigsResource as IncrementalResource,
    IncrementalAlterConfigsRequest,
)
from tests.gateway.coordinator_bench import CoordinatorBench

E, OP = ErrorCode, Operation


@pytest.fixture
def bench(bench: CoordinatorBench) -> CoordinatorBench:
    """With a topic that has a config of its own."""
    wanted = NewTopic(name="t", configs={"retention.bytes": "5"})
    bench.coordinator.topics.create(wanted, bench.now)
    return bench


def own(bench: CoordinatorBench) -> dict[str, str]:
    return dict(bench.coordinator.topics.catalog.by_name["t"].configs)


def replace(bench: CoordinatorBench, version: int = 2, **configs: str | None) -> int:
    settings = [AlterableConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()]
    resource = AlterConfigsResource(
        resource_type=Resource.TOPIC, resource_name="t", configs=settings
    )
    answer = bench.ask("AlterConfigs", version, AlterConfigsRequest(resources=[resource]))
    [result] = answer.responses
    return int(result.error_code)


def change(
    bench: CoordinatorBench,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
    name: str = "t",
    kind: int = Resource.TOPIC,
) -> int:
    configs = [
        IncrementalConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = IncrementalResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    [result] = bench.ask("IncrementalAlterConfigs", version, request).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return int(result.error_code)


@pytest.mark.parametrize("version", range(3))
def test_replacing_leaves_only_what_is_named(bench: CoordinatorBench, version: int) -> None:
    assert replace(bench, version, retention_ms=" 7 ") == E.NONE
    assert own(bench) == {"retention.ms": "7"}
    assert replace(bench, version) == E.NONE
    assert own(bench) == {}


@pytest.mark.parametrize("version", range(2))
def test_a_change_leaves_what_it_does_not_name(bench: CoordinatorBench, version: int) -> None:
    assert change(bench, ("retention.ms", OP.SET, "7"), version=version) == E.NONE
    assert own(bench) == {"retention.bytes": "5", "retention.ms": "7"}
    assert change(bench, ("retention.bytes", OP.DELETE, None), version=version) == E.NONE
    assert own(bench) == {"retention.ms": "7"}


def test_a_change_is_there_after_a_restart(bench: CoordinatorBench) -> None:
    assert change(bench, ("retention.ms", OP.SET, "7")) == E.NONE
    bench.store.commit()
    bench.restart()
    assert own(bench) == {"retention.bytes": "5", "retention.ms": "7"}


def test_lists_grow_and_shrink(bench: CoordinatorBench) -> None:
    key = "leader.replication.throttled.replicas"
    assert change(bench, (key, OP.APPEND, "0:1,1:1")) == E.NONE
    assert change(bench, (key, OP.APPEND, "1:1, 2:1")) == E.NONE
    assert own(bench)[key] == "0:1,1:1,2:1"
    assert change(bench, (key, OP.SUBTRACT, "1:1")) == E.NONE
    assert own(bench)[key] == "0:1,2:1"


def test_a_list_grows_no_longer_than_an_answer_can_have_it(
    bench: CoordinatorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_room, "TOPIC_BYTES_MAX", 1024 * 1024)
    key = "leader.replication.throttled.replicas"
    first, second = (",".join(f"{n}:1" for n in range(i, i + 3000)) for i in (10_000, 20_000))
    assert change(bench, (key, OP.SET, first)) == E.NONE
    assert change(bench, (key, OP.APPEND, second)) == E.INVALID_CONFIG
    assert own(bench)[key] == first


def test_the_lists_of_a_topic_have_a_bound(bench: CoordinatorBench) -> None:
    """Whoever may change one topic made each change of any topic take a second."""
    first, second = (",".join(f"{n}:1" for n in range(i, i + 1500)) for i in (10_000, 20_000))
    assert change(bench, ("leader.replication.throttled.replicas", OP.SET, first)) == E.NONE
    other = "follower.replication.throttled.replicas"
    assert change(bench, (other, OP.SET, second), validate_only=True) == E.INVALID_CONFIG
    assert change(bench, (other, OP.APPEND, second)) == E.INVALID_CONFIG
    assert other not in own(bench)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", OP.SET, "soon")], E.INVALID_CONFIG),
        ([("retention.ms", OP.SET, "7"), ("no.such", OP.SET, "1")], E.INVALID_CONFIG),
        ([("retention.ms", OP.APPEND, "7")], E.INVALID_CONFIG),
        ([("no.such", OP.SUBTRACT, "7")], E.INVALID_CONFIG),
        ([("retention.ms", OP.SET, None)], E.INVALID_REQUEST),
        ([("retention.ms", 9, "7")], E.INVALID_REQUEST),
        ([("retention.ms", OP.SET, "7")] * 2, E.INVALID_REQUEST),
    ],
)
def test_a_refused_change_changes_nothing(
    bench: CoordinatorBench, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert change(bench, *changes) == code
    assert own(bench) == {"retention.bytes": "5"}


def test_a_check_changes_nothing(bench: CoordinatorBench) -> None:
    assert change(bench, ("retention.ms", OP.SET, "7"), validate_only=True) == E.NONE
    assert change(bench, ("retention.ms", OP.SET, "-7"), validate_only=True) == E.INVALID_CONFIG
    assert own(bench) == {"retention.bytes": "5"}


def test_a_resource_that_cannot_be_changed_gets_its_error_code(bench: CoordinatorBench) -> None:
    wanted = ("retention.ms", OP.SET, "7")
    assert change(bench, wanted, name="none") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert change(bench, wanted, name="a b") == E.INVALID_TOPIC_EXCEPTION
    assert change(bench, wanted, name="") == E.INVALID_REQUEST
    assert change(bench, wanted, name="1", kind=Resource.BROKER) == E.INVALID_REQUEST
    assert change(bench, wanted, name="2", kind=Resource.BROKER) == E.INVALID_REQUEST
    assert change(bench, wanted, kind=77) == E.INVALID_REQUEST


def test_a_resource_that_comes_twice_is_refused_each_time(bench: CoordinatorBench) -> None:
    config = IncrementalConfig(name="retention.ms", value="7")
    resource = IncrementalResource(
        resource_type=Resource.TOPIC, resource_name="t", configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource] * 2)
    answer = bench.ask("IncrementalAlterConfigs", 1, request)
    assert [each.error_code for each in answer.responses] == [E.INVALID_REQUEST] * 2
    assert own(bench) == {"retention.bytes": "5"}


def test_a_long_list_is_subtracted_from_a_long_one_in_one_walk(bench: CoordinatorBench) -> None:
    """Each element was sought in the other list: seconds for what a topic may have."""
    of = "follower.replication.throttled.replicas"
    elements = [f"{number}:1" for number in range(2300)]
    assert change(bench, (of, OP.SET, ",".join(elements))) == E.NONE
    others = [f"{number}:2" for number in range(3000)]
    for _ in range(60):
        assert change(bench, (of, OP.SUBTRACT, ",".join(others)), validate_only=True) == E.NONE
    assert change(bench, (of, OP.SUBTRACT, ",".join([*others[:2000], *elements[1:]]))) == E.NONE
    assert own(bench)[of] == elements[0]


@pytest.mark.parametrize("version", range(2))
def test_a_refusal_that_repeats_a_long_text_can_be_read(
    bench: CoordinatorBench, version: int
) -> None:
    """Three names of 32,767 bytes are longer than a string of an answer."""
    nulls = [(letter * 32_767, OP.SET, None) for letter in "abc"]
    assert change(bench, *nulls, version=version) == E.INVALID_REQUEST
