"""From an address to a broker, with or without a door."""

import json
from pathlib import Path

import numpy as np
import pytest

from smq.client.errors import BrokerUnavailable
from smq.client.locate import AUTO, KAFKA, SHARED_MEMORY, bootstrap_of, reach_of
from tests.client.fake_kafka import FakeKafka


def test_addresses_are_taken_as_they_are() -> None:
    assert bootstrap_of("a:1,b:2") == "a:1,b:2"


def test_a_data_directory_says_where_its_broker_is(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text(json.dumps({"bootstrap": "127.0.0.1:7"}))
    assert bootstrap_of(tmp_path) == bootstrap_of(str(tmp_path)) == "127.0.0.1:7"


DEEP = pytest.param("[" * 200_000, id="deep")


@pytest.mark.parametrize("content", [None, "no json", "{}", "[]", DEEP])
def test_an_unserved_directory_raises_broker_unavailable(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "status.json").write_text(content)
    with pytest.raises(BrokerUnavailable, match=f"no broker serves the data directory {tmp_path}"):
        bootstrap_of(tmp_path)


@pytest.mark.parametrize("settings", [{}, {"runtime.dir": "/nowhere"}], ids=["none", "elsewhere"])
def test_a_broker_without_a_door_here_is_reached_over_the_wire(
    kafka: FakeKafka, settings: dict[str, str]
) -> None:
    kafka.settings = settings
    assert reach_of(kafka.bootstrap, AUTO, 5, 300).open_door is None
    with pytest.raises(BrokerUnavailable, match="cannot be reached by shared memory"):
        reach_of(kafka.bootstrap, SHARED_MEMORY, 5, 300)


def test_a_broker_that_does_not_tell_its_settings_is_reached_over_the_wire(
    kafka: FakeKafka,
) -> None:
    kafka.hidden_apis.add("DescribeConfigs")
    reach = reach_of(kafka.bootstrap, AUTO, 5, 300)
    assert (reach.bootstrap, reach.open_door) == (kafka.bootstrap, None)


def test_the_wire_is_not_asked_about_doors(kafka: FakeKafka) -> None:
    assert reach_of(kafka.bootstrap, KAFKA, 5, 300).open_door is None
    assert "DescribeConfigs" not in [name for _, name in kafka.requests]


def test_other_transports_are_refused() -> None:
    with pytest.raises(ValueError, match="transport is 'pigeon'; it should be one of"):
        reach_of("a:1", "pigeon", 5, 300)
    with pytest.raises(TypeError, match="transport is text, not ndarray"):
        reach_of("a:1", np.ones(2), 5, 300)  # type: ignore[arg-type]


def test_a_string_that_is_no_path_is_refused_as_an_address() -> None:
    for wrong in ("x" * 300, "a\0b"):
        with pytest.raises(ValueError, match="a broker's address is host:port, and not"):
            bootstrap_of(wrong)
