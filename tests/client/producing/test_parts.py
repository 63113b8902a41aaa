"""What options mean in the units that are counted in."""

from tests.client.producers import OPTIONS


def test_the_delivery_timeout_is_counted_in_milliseconds() -> None:
    assert OPTIONS._replace(delivery_timeout_s=0.25).delivery_timeout_ms == 250
