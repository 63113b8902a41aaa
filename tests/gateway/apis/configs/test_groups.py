"""Groups have no configs: describing one finds none, and setting one is refused."""

from gateway.apis.configs.kinds import Resource
from smq.model.errors import ErrorCode
from tests.gateway.apis.configs.config_asker import APPEND, DELETE, SET, change, describe
from tests.gateway.coordinator_bench import CoordinatorBench

GROUP, NAME = Resource.GROUP, "consumer.session.timeout.ms"


def test_a_group_has_no_configs(bench: CoordinatorBench) -> None:
    assert describe(bench, GROUP, "g") == {}
    assert change(bench, GROUP, "g", (NAME, DELETE, None)) == (0, None)


def test_setting_one_is_refused_with_a_sentence(bench: CoordinatorBench) -> None:
    code, sentence = change(bench, GROUP, "g", (NAME, SET, "50000"))
    assert code == ErrorCode.INVALID_CONFIG
    assert NAME in sentence
    assert change(bench, GROUP, "g", (NAME, APPEND, "1"))[0] == ErrorCode.INVALID_CONFIG
    assert change(bench, GROUP, "", (NAME, SET, "50000"))[0] == ErrorCode.INVALID_REQUEST
