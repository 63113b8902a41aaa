"""How values are written, and which broker a name means."""

import pytest

from gateway.apis.configs.entries import check_broker, text_of, type_of
from smq.model.config import SETTINGS
from smq.model.config_values import ConfigType
from smq.model.errors import BrokerError


def test_values_are_written_as_kafka_does() -> None:
    assert [text_of(each) for each in (True, 5, "x")] == ["true", "5", "x"]
    assert type_of(SETTINGS["message.max.bytes"]) is ConfigType.INT
    assert type_of(SETTINGS["seal.bytes"]) is ConfigType.LONG
    assert type_of(SETTINGS["auto.create.topics.enable"]) is ConfigType.BOOLEAN
    assert type_of(SETTINGS["durability"]) is ConfigType.STRING


@pytest.mark.parametrize("name", ["x", "", "2", "-1", "\u0661"])
def test_a_broker_is_its_id(name: str) -> None:
    check_broker("1", 1)
    with pytest.raises(BrokerError):
        check_broker(name, 1)
