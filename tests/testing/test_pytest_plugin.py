"""The fixtures in another project: pytest finds them without configuration."""

import pytest

pytest_plugins = ["pytester"]

PROJECT = """
from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster

seen = []

def names(broker):
    with Cluster(broker.bootstrap) as cluster:
        before = [each.name for each in cluster.topics() if not each.is_internal]
        create_topic(cluster, f"topic-{len(before)}")
        return [*before, f"topic-{len(before)}"]

def test_a_broker_is_fresh(smq_broker):
    assert names(smq_broker) == ["topic-0"]

def test_so_is_the_next(smq_broker):
    assert names(smq_broker) == ["topic-0"]

def test_the_session_has_one(smq_session_broker, smq_broker):
    seen.append(smq_session_broker.bootstrap)
    assert smq_broker.bootstrap not in seen

def test_for_all(smq_session_broker):
    assert seen in ([], [smq_session_broker.bootstrap])
"""


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_project_has_the_fixtures(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    pytester.makepyfile(PROJECT)
    ended = pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider", *arguments)
    ended.assert_outcomes(passed=4)
