import pytest

from smq.model.config import SETTINGS, setting_of
from smq.model.security_settings import LISTENER_SETTINGS, MECHANISM_SETTINGS
from tests.model.configs import config_of, problems_of


def test_every_setting_of_a_listener_or_mechanism_is_a_setting() -> None:
    assert SETTINGS.keys() >= LISTENER_SETTINGS >= MECHANISM_SETTINGS


def test_a_setting_of_a_listener_is_found_by_its_whole_name() -> None:
    assert setting_of("listener.name.x.ssl.client.auth") is SETTINGS["ssl.client.auth"]
    reauth = "connections.max.reauth.ms"
    assert setting_of(f"listener.name.x.plain.{reauth}") is SETTINGS[reauth]
    for name in ("listener.name.x.port", "listener.name.x.plain.ssl.client.auth", "listener.name"):
        with pytest.raises(KeyError):
            setting_of(name)


def test_a_value_of_a_listener_is_checked_and_a_later_source_precedes() -> None:
    name = "listener.name.OUT.connections.max.reauth.ms"
    config = config_of(
        file=f"{name} = 1", environment={"SMQ_LISTENER_NAME_OUT_SSL_CLIENT_AUTH": "none"}
    )
    assert dict(config.listener_settings) == {
        "listener.name.out.connections.max.reauth.ms": 1,
        "listener.name.out.ssl.client.auth": "none",
    }
    config = config_of(file=f"{name} = 1", command_line={name: "2"})
    assert dict(config.listener_settings) == {name.lower(): 2}
    [problem] = problems_of(file=f"{name} = -1")
    assert (
        "listener.name.out.connections.max.reauth.ms (configuration file): -1 is too small"
        in problem
    )
    [problem] = problems_of(file="listener.name.out.port = 1")
    assert "there is no such setting" in problem


def test_a_secret_of_a_listener_is_hidden() -> None:
    config = config_of(file="listener.name.out.ssl.key.password = 't0ken'")
    assert "t0ken" not in config.text() + str(config.changed())
