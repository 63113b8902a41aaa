"""The table of topic configs: defaults, bounds, and what each refusal says."""

from pathlib import Path

import pytest

from smq.model.config import SETTINGS, Config
from smq.model.given_configs import parse
from smq.model.topic_configs import TOPIC_CONFIGS, broker_default


@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_every_default_is_a_value_that_could_be_set(name: str) -> None:
    config = TOPIC_CONFIGS[name]
    parse(name, config.default)
    assert config.doc.endswith(".")


@pytest.mark.parametrize("name", [n for n, each in TOPIC_CONFIGS.items() if each.setting])
def test_a_brokers_setting_of_the_same_meaning_has_the_same_default(name: str) -> None:
    config = TOPIC_CONFIGS[name]
    assert SETTINGS[config.broker_key].key == config.setting
    assert broker_default(config, Config(data_dir=Path("/data"))) == config.default
