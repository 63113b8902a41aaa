"""Sources, and the bounds of each value."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from smq.model.config import SETTINGS, Config
from smq.model.config_sources import parse
from smq.model.setting import GiB, MiB
from tests.model.configs import MACHINE, config_of, problems_of


def test_defaults_come_from_the_machine() -> None:
    config = config_of()
    assert config.shards == 3
    assert config.data_dir == MACHINE.data_home
    assert config.filer_root == str(MACHINE.data_home / "filer")
    assert config.runtime_dir == MACHINE.runtime_home


def test_one_core_gives_one_shard() -> None:
    config = parse(MACHINE._replace(cores=1))
    assert isinstance(config, Config)
    assert config.shards == 1


def test_each_source_wins_over_the_one_before() -> None:
    file = "port = 1\nshards = 1\nseal.bytes = '1MiB'\n[group]\nmax.size = 7\n"
    environment = {"SMQ_PORT": "2", "SMQ_SHARDS": "2", "HOME": "/"}
    config = config_of(file=file, environment=environment, command_line={"port": 3})
    assert (config.port, config.shards) == (3, 2)
    assert (config.seal_bytes, config.group_max_size) == (MiB, 7)


def test_listeners_replace_the_short_form_of_an_earlier_source() -> None:
    """An image says where it listens by itself; whoever gives listeners means those."""
    file = "host = '0.0.0.0'\nport = 1\nhttp.host = '0.0.0.0'"
    listeners = "INSIDE://127.0.0.1:2"
    config = config_of(file=file, environment={"SMQ_LISTENERS": listeners})
    assert (config.listeners, config.host, config.port) == (listeners, "127.0.0.1", 9092)
    assert config.http_host == "0.0.0.0"
    environment = {"SMQ_HOST": "::1", "SMQ_ADVERTISE": "x"}
    config = config_of(environment=environment, command_line={"listeners": listeners})
    assert (config.host, config.advertise) == ("127.0.0.1", "")


def test_the_short_form_does_not_replace_listeners_of_an_earlier_source() -> None:
    """Else a variable would take logins away; the two are refused together."""
    config = config_of(file="listeners = 'INSIDE://127.0.0.1:2'", environment={"SMQ_PORT": "1"})
    assert (config.listeners, config.port) == ("INSIDE://127.0.0.1:2", 1)
    config = config_of(environment={"SMQ_LISTENERS": "", "SMQ_PORT": "1"})
    assert config.port == 1


def test_variables_of_clients_and_of_smq_user_are_no_settings() -> None:
    given = {"SMQ_CLIENT_SASL_PASSWORD": "x", "SMQ_CLIENT_PROPERTIES": "x"}
    config = config_of(environment=given | {"SMQ_USER_PASSWORD": "x", "SMQ_PORT": "7"})
    assert config.port == 7
    [problem] = problems_of(environment={"SMQ_CLIENTS": "1"})
    assert problem.startswith("clients (environment): there is no such setting")


def test_a_secret_comes_from_the_file_that_its_value_names(tmp_path: Path) -> None:
    """Door fault 7."""
    kept = tmp_path / "webhook"
    kept.write_text("https://hooks.example/t0ken\n")
    for source in (
        {"command_line": {"lag.alert.webhook": f"file:{kept}"}},
        {"environment": {"SMQ_LAG_ALERT_WEBHOOK": f"file:{kept}"}},
        {"file": f"lag.alert.webhook = 'file:{kept}'"},
    ):
        assert config_of(**source).lag_alert_webhook == "https://hooks.example/t0ken"
    kept.write_bytes(b"\xff")
    for name, sentence in (
        (kept, "is not UTF-8"),
        (tmp_path / "no", "cannot be read"),
        ("/dev/zero", "cannot be read: it is no file, but a pipe or a device"),
    ):
        [problem] = problems_of(command_line={"otlp.endpoint": f"file:{name}"})
        assert f"otlp.endpoint (command line): the file {name} {sentence}" in problem


def test_no_problem_tells_a_secret() -> None:
    problems = problems_of(environment={"SMQ_LAG_ALERT_WEBHOOK": "t0ken"})
    assert problems == ["lag.alert.webhook: it is no http:// or https:// URL"]


def test_a_value_that_may_be_empty_is_named_so() -> None:
    [problem] = problems_of(command_line={"ssl.keystore.type": "DER"})
    assert problem.endswith("'DER' is not one of nothing, PEM, PKCS12, JKS")


def test_every_problem_is_named_at_once() -> None:
    problems = problems_of(
        file="prot = 1\nshards = 'many'",
        environment={"SMQ_DURABILITY": "quantum", "SMQ_AUTO_CREATE_TOPICS_ENABLE": "perhaps"},
        command_line={"port": 70000, "seal.ms": "0"},
    )
    assert problems == [
        "prot (configuration file): there is no such setting; did you mean port?",
        "shards (configuration file): 'many' is not a whole number",
        "durability (environment): 'quantum' is not one of memory, os, disk",
        "auto.create.topics.enable (environment): 'perhaps' is not true or false",
        "port (command line): 70000 is too large; it must be at most 65535",
        "seal.ms (command line): 0 is too small; it must be at least 1",
    ]


def test_a_file_that_is_not_toml_is_said_so() -> None:
    (problem,) = problems_of(file="port 9092")
    assert problem.startswith("configuration file: not valid TOML")
    (problem,) = problems_of(file="port 9092", file_name="/etc/smq.toml")
    assert problem.startswith("/etc/smq.toml: not valid TOML")


@pytest.mark.parametrize(
    ("written", "value"),
    [("1048576", MiB), ("1MiB", MiB), ("1 mib", MiB), ("2GiB", 2 * GiB), ("1MB", 1_000_000)],
)
def test_sizes_may_have_units(written: str, value: int) -> None:
    assert config_of(environment={"SMQ_SEAL_BYTES": written}).seal_bytes == value


def test_paths_are_absolute_and_the_current_directory_is_one() -> None:
    config = config_of(command_line={"data.dir": "."})
    assert config.data_dir == Path.cwd()
    assert config.filer_root == str(Path.cwd() / "filer")


@pytest.mark.parametrize("path", ["", "a\0b", "~nobody-of-this-name/data"])
def test_an_invalid_path_is_refused(path: str) -> None:
    (problem,) = problems_of(command_line={"data.dir": path})
    assert problem.startswith("data.dir (command line): ")


def test_contradictions_and_sizes_are_named_beside_values_that_are_wrong() -> None:
    problems = problems_of(
        command_line={
            "durability": "none",
            "port": 65535,
            "message.max.bytes": 2_000_000_000,
            "ring.bytes": "1TiB",
        }
    )
    assert [problem.split(":")[0] for problem in problems] == [
        "durability (command line)",
        "port",
        "message.max.bytes",
        "message.max.bytes",
        "ring.bytes",
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"port": 65535, "shards": "many"},
        {"port": "http", "http.port": 9092},
        {"group.min.session.timeout.ms": "5 min", "group.max.session.timeout.ms": 5},
        {"message.max.bytes": "200MiB", "socket.request.max.bytes": 0, "ring.bytes": "tiny"},
    ],
)
def test_of_a_value_that_is_wrong_nothing_else_is_said(given: dict[str, Any]) -> None:
    assert all("(command line)" in problem for problem in problems_of(command_line=given))


@given(st.dictionaries(st.sampled_from([*SETTINGS, "nonsense"]), st.text(), min_size=1))
def test_any_text_gives_a_config_or_sentences(given: dict[str, str]) -> None:
    result = parse(MACHINE, command_line=given)
    assert isinstance(result, Config) or all(": " in sentence for sentence in result)
