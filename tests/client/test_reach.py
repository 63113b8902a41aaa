"""What everything is made with makes clusters of their own."""

from smq.client.reach import Reach
from tests.client.fake_kafka import FakeKafka


def test_each_cluster_is_ones_own(kafka: FakeKafka) -> None:
    reach = Reach(kafka.bootstrap)
    with reach.cluster() as one, reach.cluster() as other:
        assert one is not other
        one.forget()
        assert not other.anyone().is_closed
    assert reach.open_door is None
