"""What subscriptions have in common: instances with several streams, and what they ask for."""

import pytest

from smq.app.agent.subscribing import InstanceName, Instances, is_explicit, refuse_filter


class Call:
    """A call with metadata."""

    def __init__(self, *metadata: tuple[str, str]) -> None:
        self._metadata = metadata

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata


def test_the_streams_of_an_instance_have_the_same_windows() -> None:
    instances, name = Instances(), InstanceName("g", "i")
    with instances.stream_of(name) as one:
        with instances.stream_of(name) as two, instances.stream_of(InstanceName("g", "j")) as other:
            assert one is two
            assert other is not one
        with instances.stream_of(name) as three:
            assert three is one
    with instances.stream_of(name) as later:
        assert later is not one


def test_acknowledgements_are_explicit_where_the_metadata_says_so() -> None:
    assert is_explicit(Call(("smq-ack", "explicit")))
    assert not is_explicit(Call(("smq-ack", "no"), ("other", "explicit")))
    assert not is_explicit(Call())


def test_a_filter_is_refused_and_not_ignored() -> None:
    refuse_filter("")
    with pytest.raises(ValueError, match="no filters"):
        refuse_filter("price > 1")
