"""The table of settings, and its documentation."""

import tomllib

import pytest

from smq.model.config import SETTINGS, Config, documentation
from smq.model.config_rules import size_wal
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.model.setting import HIDDEN, GiB
from tests.model.configs import config_of, sized


@pytest.mark.parametrize(
    ("given", "node_id", "address"),
    [
        ({}, 2, ("127.0.0.1", 555)),
        ({"host": "::1"}, 1, ("::1", 555)),
        ({"advertise": "kafka.example"}, 2, ("kafka.example", 555)),
        ({"advertise": "kafka.example:7000"}, 3, ("kafka.example", 7002)),
        ({"advertise": "[fd00::1]:7000"}, 1, ("fd00::1", 7000)),
    ],
)
def test_the_advertised_address_follows_the_settings(
    given: dict[str, str], node_id: int, address: tuple[str, int]
) -> None:
    assert config_of(command_line=given).advertised(node_id, 555) == address


def test_the_text_of_a_config_gives_the_same_config() -> None:
    config = sized(config_of(command_line={"data.dir": '/a"b', "port": 0}), 3, GiB)
    config = size_wal(config, 3, 100 * GiB)
    assert config_of(file=config.text()) == config
    assert tomllib.loads(config.text())["ring"]["bytes"] == config.ring_bytes


def test_changed_returns_settings_that_differ_from_their_defaults() -> None:
    changed = config_of(command_line={"port": 9092, "seal.ms": 7}).changed()
    assert changed["seal.ms"] == 7
    assert "port" not in changed


def test_every_setting_is_documented_under_each_of_its_names() -> None:
    table = documentation()
    for setting in SETTINGS.values():
        assert f"| `{setting.name}` |" in table
        assert setting.doc.endswith((".", "7)."))
    wal = SETTINGS["wal.bytes.max"]
    assert (wal.key, wal.option, wal.variable) == (
        "wal_bytes_max",
        "--wal-bytes-max",
        "SMQ_WAL_BYTES_MAX",
    )


def test_a_secret_is_shown_nowhere() -> None:
    """Door fault 7: a webhook's token was printed at each start, and told to every client."""
    config = config_of(environment={"SMQ_LAG_ALERT_WEBHOOK": "https://hooks.example/t0ken"})
    assert config.lag_alert_webhook == "https://hooks.example/t0ken"
    assert config.changed()["lag.alert.webhook"] == HIDDEN
    assert "t0ken" not in config.text()
    assert "# lag.alert.webhook is set, and hidden" in config.text()
    assert 'lag.alert.webhook = ""' in config_of().text()


@pytest.mark.parametrize(
    ("audit_log_enable", "authorizer", "is_audited"),
    [
        ("", "", False),
        ("", STANDARD_AUTHORIZER, True),
        ("true", "", True),
        ("false", STANDARD_AUTHORIZER, False),
    ],
)
def test_there_is_an_audit_log_with_an_authorizer_or_as_the_setting_says(
    audit_log_enable: str, authorizer: str, is_audited: bool
) -> None:
    config = Config(audit_log_enable=audit_log_enable, authorizer_class_name=authorizer)
    assert config.is_audited == is_audited
