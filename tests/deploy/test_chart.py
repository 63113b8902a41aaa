"""What the chart makes of its values, by helm; and its pod, started without Kubernetes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import smq
from smq.app.process.status import read_status
from smq.model.config import Config
from smq.model.errors import BrokerError
from smq.testing.processes import Child, ReservedPorts
from tests.deploy.test_image import started

CHART = "deploy/helm/smq"
LOGINS = ("tls.secret=pair", "users.secret=people")
SECONDS_MAX = 120.0  # The first start on a machine compiles the kernels.
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm; make deploy-test"),
]


def helm(*values: str) -> subprocess.CompletedProcess[str]:
    given = [argument for value in values for argument in ("--set", value)]
    return subprocess.run(
        ["helm", "template", "queue", CHART, "--namespace", "ours", *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def pod(*values: str) -> dict[str, Any]:
    done = helm(*values)
    assert done.returncode == 0, done.stderr
    [stateful_set] = [
        each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "StatefulSet"
    ]
    found: dict[str, Any] = stateful_set["spec"]["template"]
    return found


def environment(rendered: dict[str, Any]) -> dict[str, str]:
    """The broker's variables; a secret's are its name and key."""
    [broker] = rendered["spec"]["containers"]
    return {
        each["name"]: each.get("value") or "/".join(each["valueFrom"]["secretKeyRef"].values())
        for each in broker["env"]
    }


def mounts(rendered: dict[str, Any]) -> dict[str, str]:
    """The secret at each path of the broker's container."""
    [broker] = rendered["spec"]["containers"]
    volumes = {
        each["name"]: each["secret"]["secretName"] for each in rendered["spec"].get("volumes", ())
    }
    return {
        each["mountPath"]: volumes[each["name"]]
        for each in broker["volumeMounts"]
        if each["name"] in volumes
    }


def test_without_values_about_access_the_broker_refuses_to_start() -> None:
    problems = started(environment=environment(pod()))
    assert isinstance(problems, list)
    assert "allow.plaintext=true" in problems[0]


def test_the_flag_opens_the_broker() -> None:
    config = started(environment=environment(pod("allowPlaintext=true")))
    assert isinstance(config, Config)
    assert (config.host, config.advertise) == ("0.0.0.0", "queue.ours.svc")


def test_secrets_give_tls_and_logins() -> None:
    rendered = pod(*LOGINS, "metricsToken.secret=token", "shards=2")
    assert mounts(rendered) == {"/etc/smq-tls": "pair"}
    given = environment(rendered)
    assert given["SMQ_METRICS_TOKEN"] == "token/token"
    config = started(environment=given)
    assert isinstance(config, Config)
    assert config.advertised_listeners == "CLIENTS://queue.ours.svc"
    assert (config.allow_plaintext, config.allow_anonymous) == (False, False)
    assert "annotations" not in rendered["metadata"], "/metrics would refuse who has no token"
    assert "annotations" in pod("allowPlaintext=true")["metadata"]


def test_clients_may_be_known_by_their_certificates() -> None:
    rendered = pod("tls.secret=pair", "tls.clientCertificates=true", "superUsers=User:CN=ops")
    assert "initContainers" not in rendered["spec"]
    config = started(environment=environment(rendered))
    assert isinstance(config, Config)
    assert (config.ssl_client_auth, config.super_users) == ("required", "User:CN=ops")
    assert config.listener_security_protocol_map == "CLIENTS:SSL"


def test_a_secret_with_a_file_says_all_about_listeners() -> None:
    rendered = pod("config.secret=settings", "users.secret=people")
    assert mounts(rendered) == {"/etc/smq": "settings"}
    assert environment(rendered) == {"SMQ_SHARDS": "1"}
    assert [each["name"] for each in rendered["spec"]["initContainers"]] == ["users"]


@pytest.mark.parametrize(
    "values",
    [
        ("tls.secret=pair", "config.secret=settings"),
        ("tls.secret=pair", "allowPlaintext=true"),
        ("config.secret=settings", "allowPlaintext=true"),
        ("users.secret=people",),
        ("users.secret=people", "allowPlaintext=true"),
        ("tls.clientCertificates=true",),
        ("users.password=secret",),
    ],
)
def test_values_that_contradict_each_other_are_refused(values: tuple[str, ...]) -> None:
    done = helm(*values)
    assert done.returncode != 0
    assert "one of tls.secret" in done.stderr or "need" in done.stderr or "users" in done.stderr


@contextmanager
def _running(rendered: dict[str, Any], home: Path) -> Iterator[int]:
    """Runs a pod's containers with its paths below `home`; yields the port."""
    (home / "data").mkdir(exist_ok=True)
    reserved = ReservedPorts(1)

    def here(text: str) -> str:
        for path in ("/etc/smq-tls", "/etc/smq-users", "/data"):
            text = text.replace(path, str(home / path.split("/")[-1]))
        return text.replace("0.0.0.0:9092", f"127.0.0.1:{reserved.first}")

    programs = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for each in rendered["spec"].get("initContainers", ()):
        command = [here(word) for word in each["command"]]
        subprocess.run(command, check=True, env=os.environ | programs, timeout=SECONDS_MAX)
    given = {name: here(value) for name, value in environment(rendered).items()}
    given |= programs | {"SMQ_DATA_DIR": str(home / "data"), "SMQ_RUNTIME_DIR": str(home / "r")}
    broker = Child.start(["smq", "serve"], home / "output", given)

    def is_ready() -> bool:
        found = read_status(home / "data")
        return found is not None and found[0].ready

    try:
        broker.wait_ready(is_ready, SECONDS_MAX)
        yield reserved.first
    finally:
        broker.terminate()
        reserved.close()


@pytest.mark.timeout(300)
def test_a_pod_with_secrets_serves_who_logs_in_and_only_them(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "smq.cli.main"]
    subprocess.run([*run, "certs", str(tmp_path / "made")], check=True, timeout=SECONDS_MAX)
    pair, users = tmp_path / "smq-tls", tmp_path / "smq-users"
    pair.mkdir()
    key, chain = (tmp_path / "made" / "broker.pem").read_text().split("-----BEGIN CERT", 1)
    (pair / "tls.key").write_text(key)
    (pair / "tls.crt").write_text("-----BEGIN CERT" + chain)
    users.mkdir()
    (users / "admin").write_text("first")
    (users / "other").write_text("second\n")
    rendered = pod(*LOGINS, "advertise=localhost")
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": "first",
        "ssl.ca.location": str(tmp_path / "made" / "ca.pem"),
    }
    with _running(rendered, tmp_path) as port:
        address = f"localhost:{port}"
        with smq.connect(address, config=login) as client:
            client.create_topic("orders")
        other = {"sasl.username": "other", "sasl.password": "second"}
        with smq.connect(address, config=login | other) as client:
            assert client.topics() == {}
        with pytest.raises(BrokerError, match="SASL_AUTHENTICATION_FAILED"):
            smq.connect(address, config=login | {"sasl.password": "wrong"}).topics()
    (users / "admin").write_text("changed")
    with (
        _running(rendered, tmp_path) as port,
        smq.connect(f"localhost:{port}", config=login | {"sasl.password": "changed"}) as client,
    ):
        assert [*client.topics()] == ["orders"]
