"""What the image starts, without Docker: its entry point, its file and its environment."""

import re
from collections.abc import Mapping
from pathlib import Path

from smq.cli.start import plain_options
from smq.model.config import Config
from smq.model.config_sources import parse
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.listener_rules import problems_of_listeners
from smq.security.listeners import http_host
from tests.model.configs import MACHINE

DEPLOY = Path("deploy")
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
FILE = Path("/etc/smq/smq.toml")
LOGINS = {
    "listeners": "CLIENTS://0.0.0.0:9092",
    "advertised.listeners": "CLIENTS://queue.example",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL",
    "ssl.keystore.location": "/etc/smq/broker.pem",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
}


def started(
    *arguments: str, environment: Mapping[str, str] | None = None, file: str | None = None
) -> Config | list[str]:
    """The settings of a container, or why it does not start."""
    [entry] = re.findall(r"^ENTRYPOINT \[(.*)\]$", DOCKERFILE, re.MULTILINE)
    smq, serve, *given = re.findall(r'"([^"]*)"', entry)
    assert (smq, serve) == ("smq", "serve")
    options = plain_options([*given, *arguments])
    assert options is not None
    assert options.file == FILE
    image = image_environment()
    text = (DEPLOY / "image.toml").read_text() if file is None else file
    config = parse(
        MACHINE,
        file=text,
        environment=image | dict(environment or {}),
        command_line=options.given,
    )
    if isinstance(config, list):
        return config
    return [each.sentence for each in problems_of_listeners(config)] or config


def image_environment() -> dict[str, str]:
    [variables] = re.findall(r"^ENV ((?:.*\\\n)*.*)$", DOCKERFILE, re.MULTILINE)
    return dict(re.findall(r"(\w+)=(\S+)", variables))


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"SMQ_{name.upper().replace('.', '_')}": value for name, value in settings.items()}


def test_the_image_has_the_file_that_its_entry_point_names() -> None:
    assert f"\nCOPY deploy/image.toml {FILE}\n" in DOCKERFILE


def test_without_a_flag_or_logins_the_image_does_not_start() -> None:
    problems = started("--advertise", "queue.example")
    assert isinstance(problems, list)
    assert [each.split(":")[0] for each in problems] == ["http.host", "listeners"]
    assert all("allow.plaintext=true" in each for each in problems)


def test_listeners_in_the_environment_replace_those_of_the_image() -> None:
    config = started(environment=variables(LOGINS))
    assert isinstance(config, Config)
    assert (config.listeners, http_host(config)) == (LOGINS["listeners"], "0.0.0.0")


def test_a_file_in_the_place_of_the_images_says_all() -> None:
    config = started(file="\n".join(f'{name} = "{value}"' for name, value in LOGINS.items()))
    assert isinstance(config, Config)
    assert (config.listeners, http_host(config)) == (LOGINS["listeners"], "0.0.0.0")
    assert str(config.data_dir) == "/data"


def test_the_image_reads_pkcs12_and_names_of_certificates_and_speaks_grpc() -> None:
    assert "--prefix=/install '/src[security,grpc]'\n" in DOCKERFILE
