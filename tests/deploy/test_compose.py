"""What compose starts, without Docker, after the commands of deploy/README.md."""

import json
import re
import shutil
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

import smq
from smq.app.process.status import read_status
from smq.model.config import Config
from smq.model.errors import BrokerError
from smq.security.listeners import Protocol, grpc_listeners, grpc_ports
from tests.deploy.started import Described, login_of, run, started
from tests.deploy.test_image import (
    DOCKERFILE,
    image_environment,
    started as started_by_image,
)

DEPLOY = Path("deploy")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]
README = (DEPLOY / "README.md").read_text()
FROM_STDIN = "--password-file /dev/stdin"
RULES = [
    {"principal": "User:alice", "operation": "READ", "resource_type": "TOPIC", "name": "orders"}
]


def mounted(service: str, home: Path) -> dict[str, str]:
    """Where the directories of the host are that a service sees."""
    pairs = (each.removesuffix(":ro").split(":") for each in COMPOSE[service]["volumes"])
    return {inside: str(home / outside) for outside, inside in pairs if outside.startswith("./")}


def entry_point() -> list[str]:
    [entry] = re.findall(r"^ENTRYPOINT \[(.*)\]$", DOCKERFILE, re.MULTILINE)
    words: list[str] = re.findall(r'"([^"]*)"', entry)
    return words


def with_defaults(environment: dict[str, str]) -> dict[str, str]:
    """The variables of a service, where the host sets none."""
    return {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for name, value in environment.items()}


def of_compose(home: Path) -> Described:
    """The services of SMQ; `home` is where compose.yml lies."""
    shutil.copy(DEPLOY / "image.toml", home)
    prepare = COMPOSE["prepare"]
    environment = with_defaults(COMPOSE["smq"]["environment"])
    image = image_environment() | {"SMQ_HTTP_HOST": "127.0.0.1", "SMQ_HTTP_PORT": "0"}
    del image["XDG_CACHE_HOME"]  # Compiled kernels are here.
    return Described(
        [[*prepare["entrypoint"], *prepare["command"]]],
        entry_point(),
        image | environment,
        {
            **mounted("prepare", home),
            **mounted("smq", home),
            "/data": str(home / "data"),
            "/etc/smq/smq.toml": str(home / "image.toml"),
            "localhost:9192": "localhost",  # The port is another one here.
        },
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory that the page's commands have filled."""
    [block] = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    lines = [each for each in block.splitlines() if not each.startswith("chown ")]
    assert lines[0] == "cd deploy"
    run(["bash", "-euc", "\n".join([f"cd {tmp_path}", *lines[1:]])], {})
    return tmp_path


class Asked(NamedTuple):
    """How HTTP answers at an address."""

    address: str
    context: ssl.SSLContext

    def status(self, path: str, **headers: str) -> int:
        request = urllib.request.Request(f"https://{self.address}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refusal:
            return refusal.code


def at(home: Path) -> Asked:
    found = read_status(home / "data")
    assert found is not None
    address = found[0].http.replace("127.0.0.1", "localhost")
    return Asked(address, ssl.create_default_context(cafile=home / "secrets/prometheus/ca.pem"))


def check_health(http: str, environment: dict[str, str]) -> None:
    """Raises if the image's health check fails."""
    [words] = re.findall(r'CMD \["python", "-c", \\\n(.*?)\]\n', DOCKERFILE, re.DOTALL)
    program = json.loads(words.strip().replace("\\\n", ""))
    run(["python", "-c", program.replace("127.0.0.1:9080", http)], environment)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_compose_serves_users_by_their_rules_and_prometheus_by_its_token(home: Path) -> None:
    users, authority = home / "secrets/prepare/users", home / "secrets/prometheus/ca.pem"
    (users / "alice").write_text("first\n")
    (home / "secrets/prepare/rules.json").write_text(json.dumps(RULES))
    admin = login_of("admin", (users / "admin").read_text(), authority)
    alice = login_of("alice", "first", authority)
    described = of_compose(home)
    with started(described, home, "0.0.0.0:9192") as port:
        address = f"localhost:{port}"
        with smq.connect(address, config=admin) as client:
            client.create_topic("orders")
            client.create_topic("wages")
        with smq.connect(address, config=alice) as client:
            assert [*client.topics()] == ["orders"]
        with pytest.raises(BrokerError, match="SASL_AUTHENTICATION_FAILED"):
            smq.connect(address, config=alice | {"sasl.password": "wrong"}).topics()
        token = (home / "secrets/prometheus/prometheus.token").read_text().strip()
        http = at(home)
        assert http.status("/metrics", authorization=f"Bearer {token}") == 200
        assert http.status("/metrics") == 401
        assert http.status("/health") == 401
        assert f"smq user add alice {FROM_STDIN} --data-dir /data < " in README
        (users / "alice").write_text("second\n")
        given = f"smq user add alice {FROM_STDIN} --data-dir {home}/data < {users}/alice"
        run(["bash", "-c", given], {})
        with smq.connect(address, config=alice | {"sasl.password": "second"}) as client:
            assert [*client.topics()] == ["orders"]
        check_health(http.address.replace("localhost", "127.0.0.1"), dict(described.environment))
    again = [*described.before[0], "--json"]
    said = json.loads(run([described.here(word) for word in again], {}))
    assert said == {
        "users": {"admin": "as before", "alice": "as before"},
        "rules": {"added": 0, "there": 1},
    }


def test_the_broker_sees_no_password_and_prometheus_no_key() -> None:
    sees = {name: str(each.get("volumes", "")) for name, each in COMPOSE.items()}
    assert [name for name in sees if "secrets/prepare" in sees[name]] == ["prepare"]
    assert [name for name in sees if "secrets/broker" in sees[name]] == ["smq"]
    assert COMPOSE["prepare"]["network_mode"] == "none"
    assert not any("SMQ_" in str(each) for name, each in COMPOSE.items() if name != "smq")
    assert [name for name in sees if "secrets/grafana" in sees[name]] == ["grafana"]
    assert "secrets/prometheus" not in sees["grafana"]


def test_grafana_has_the_password_of_a_file_and_no_default(home: Path) -> None:
    text = (DEPLOY / "compose.yml").read_text()
    [(name, value)] = COMPOSE["grafana"]["environment"].items()
    assert name == "GF_SECURITY_ADMIN_PASSWORD"
    assert text.count("PASSWORD") == 1
    # Compose turns $$ into $; Grafana does not start without a file that it is to expand.
    [inside] = re.fullmatch(r"\$\$__file\{(.+)\}", value).groups()  # type: ignore[union-attr]
    directory, _, file = inside.rpartition("/")
    password = Path(mounted("grafana", home)[directory]) / file
    assert re.fullmatch(r"[0-9a-f]{32}\n", password.read_text())
    assert password.stat().st_mode & 0o077 == 0
    assert "secrets/grafana" in README.partition("chown -R 472 ")[2].partition("\n")[0]


def test_only_grafana_reaches_prometheus() -> None:
    """It shows the names of all topics and groups to everybody who reaches it."""
    prometheus = COMPOSE["prometheus"]
    assert prometheus["network_mode"] == "service:grafana"
    assert "--web.listen-address=127.0.0.1:9090" in prometheus["command"]
    assert "ports" not in prometheus
    source = yaml.safe_load(
        (DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text()
    )
    assert [each["url"] for each in source["datasources"]] == ["http://127.0.0.1:9090"]
    assert "--config.file=/etc/prometheus/prometheus.yml" in prometheus["command"]
    assert "./prometheus:/etc/prometheus:ro" in prometheus["volumes"]


def test_the_grpc_services_of_the_page_are_behind_tls_and_logins() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    own = yaml.safe_load(block)["services"]["smq"]
    environment = with_defaults(COMPOSE["smq"]["environment"] | own["environment"])
    config = started_by_image(environment=environment)
    assert isinstance(config, Config)
    protocols = {each.protocol for each in grpc_listeners(config).values()}
    assert protocols == {Protocol.SASL_SSL}
    ports = [f"{port}:{port}" for port in grpc_ports(config).values()]
    assert ports == own["ports"]
    assert config.grpc_advertise == "localhost:17777"


def test_secrets_get_neither_into_the_image_nor_into_the_repository() -> None:
    for file in (".dockerignore", ".gitignore"):
        ignored = Path(file).read_text().split()
        for made in ("secrets", "authority"):  # Where README.md has them made.
            assert {f"deploy/{made}", f"/deploy/{made}/"} & {*ignored}, (file, made)


def targets() -> list[Any]:
    scrapes = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    return [each["targets"] for job in scrapes for each in job["static_configs"]]


def test_prometheus_asks_for_the_name_that_the_brokers_certificate_has() -> None:
    assert targets() == [["smq:9080"]]
    assert COMPOSE["smq"]["hostname"] == "smq"
    assert "smq certs authority --host smq " in README
