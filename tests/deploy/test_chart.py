"""What the chart makes of its values, by helm; and its pod, started without Kubernetes."""

import json
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml

import smq
from smq.app.process.status import read_status
from smq.model.config import Config
from smq.model.errors import BrokerError
from smq.security.listeners import grpc_listeners, listeners_of
from tests.cli.test_prepare import READ
from tests.deploy.started import SECONDS_MAX, Described, login_of, started
from tests.deploy.test_image import started as started_by_image

CHART = "deploy/helm/smq"
LOGINS = ("tls.secret=pair", "users.secret=people", "rules.secret=rules")
LISTENS = "0.0.0.0:9092"
TOKEN = {"authorization": "Bearer s3cret"}
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
    """The broker's variables, none of which is a secret."""
    [broker] = rendered["spec"]["containers"]
    return {each["name"]: each["value"] for each in broker["env"]}


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
    problems = started_by_image(environment=environment(pod()))
    assert isinstance(problems, list)
    assert "allow.plaintext=true" in problems[0]


def test_the_flag_opens_the_broker() -> None:
    config = started_by_image(environment=environment(pod("allowPlaintext=true")))
    assert isinstance(config, Config)
    assert (config.host, config.advertise) == ("0.0.0.0", "queue.ours.svc")


def test_secrets_give_tls_and_logins() -> None:
    rendered = pod(*LOGINS, "metricsToken.secret=token", "shards=2")
    assert mounts(rendered) == {"/etc/smq-tls": "pair", "/etc/smq-metrics": "token"}
    given = environment(rendered)
    assert given["SMQ_METRICS_TOKENS_LOCATION"] == "/etc/smq-metrics/token"
    [broker] = rendered["spec"]["containers"]
    probes = (broker[f"{name}Probe"]["httpGet"]["scheme"] for name in ("startup", "liveness"))
    assert [*probes, given["SMQ_HTTP_SECURITY_PROTOCOL"]] == ["HTTPS", "HTTPS", "SSL"]
    config = started_by_image(environment=given)
    assert isinstance(config, Config)
    assert config.advertised_listeners == "CLIENTS://queue.ours.svc"
    assert (config.allow_plaintext, config.allow_anonymous) == (False, False)
    assert rendered["spec"]["automountServiceAccountToken"] is False
    assert rendered["spec"]["enableServiceLinks"] is False, "SMQ_SERVICE_HOST is no setting"
    assert "annotations" not in rendered["metadata"], "/metrics would refuse who has no token"
    assert "annotations" in pod("allowPlaintext=true")["metadata"]


def test_clients_may_be_known_by_their_certificates() -> None:
    rendered = pod("tls.secret=pair", "tls.clientCertificates=true", "superUsers=User:CN=ops")
    assert "initContainers" not in rendered["spec"]
    config = started_by_image(environment=environment(rendered))
    assert isinstance(config, Config)
    [listener] = listeners_of(config)
    assert (listener.client_auth(config), config.super_users) == ("required", "User:CN=ops")
    assert config.listener_security_protocol_map == "CLIENTS:SSL"


@pytest.mark.parametrize("certificates", ["false", "true"])
def test_the_grpc_services_have_the_security_of_the_listener(certificates: str) -> None:
    rendered = pod("tls.secret=pair", f"tls.clientCertificates={certificates}", "grpc.enabled=true")
    config = started_by_image(environment=environment(rendered))
    assert isinstance(config, Config)
    [kafka] = listeners_of(config)
    found = grpc_listeners(config)
    assert {name: each.listens.port for name, each in found.items()} == {
        "grpc.port": 17777,
        "agent.port": 16777,
    }
    for each in found.values():
        assert each.protocol is kafka.protocol
        assert each.client_auth(config) == kafka.client_auth(config)
    assert config.grpc_advertise == "queue.ours.svc:17777"
    [broker] = rendered["spec"]["containers"]
    assert {each["name"] for each in broker["ports"]} >= {"grpc", "agent"}
    assert "SMQ_GRPC_PORT" not in environment(pod("tls.secret=pair"))


def test_a_secret_with_a_file_says_all_about_listeners() -> None:
    rendered = pod("config.secret=settings", "users.secret=people")
    assert mounts(rendered) == {"/etc/smq": "settings"}
    assert environment(rendered) == {"SMQ_SHARDS": "1"}
    [prepare] = rendered["spec"]["initContainers"]
    assert prepare["args"] == ["--users=/etc/smq-users"]
    secured = environment(pod("config.secret=settings", "config.https=true"))
    assert secured == {"SMQ_SHARDS": "1", "SMQ_HTTP_SECURITY_PROTOCOL": "SSL"}


@pytest.mark.parametrize(
    "values",
    [
        ("tls.secret=pair", "config.secret=settings"),
        ("tls.secret=pair", "allowPlaintext=true"),
        ("config.secret=settings", "allowPlaintext=true"),
        ("users.secret=people",),
        ("rules.secret=rules",),
        ("users.secret=people", "allowPlaintext=true"),
        ("tls.clientCertificates=true",),
        ("users.password=secret",),
    ],
)
def test_values_that_contradict_each_other_are_refused(values: tuple[str, ...]) -> None:
    done = helm(*values)
    assert done.returncode != 0
    assert "one of tls.secret" in done.stderr or "need" in done.stderr or "users" in done.stderr


def _described(rendered: dict[str, Any], home: Path) -> Described:
    """A pod's containers, with its paths below `home`."""
    paths = ("/etc/smq-tls", "/etc/smq-users", "/etc/smq-rules", "/etc/smq-metrics", "/data")
    return Described(
        [[*each["command"], *each["args"]] for each in rendered["spec"]["initContainers"]],
        ["smq", "serve"],
        environment(rendered) | {"SMQ_HTTP_HOST": "127.0.0.1", "SMQ_HTTP_PORT": "0"},
        {path: str(home / path.rpartition("/")[2]) for path in paths},
    )


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
    (users / "alice").write_text("second")
    (users / "other").write_text("second\n")
    (tmp_path / "smq-rules").mkdir()
    (tmp_path / "smq-rules" / "rules.json").write_text(json.dumps([READ]))
    (tmp_path / "smq-metrics").mkdir()
    (tmp_path / "smq-metrics" / "token").write_text("s3cret")
    described = _described(pod(*LOGINS, "advertise=localhost", "metricsToken.secret=t"), tmp_path)
    admin, authority = "admin", tmp_path / "made" / "ca.pem"
    with started(described, tmp_path, LISTENS) as port:
        address = f"localhost:{port}"
        with smq.connect(address, config=login_of(admin, "first", authority)) as client:
            client.create_topic("orders")
            client.create_topic("wages")
        for user, may_see in (("other", []), ("alice", ["orders"])):
            with smq.connect(address, config=login_of(user, "second", authority)) as client:
                assert [*client.topics()] == may_see
        with pytest.raises(BrokerError, match="SASL_AUTHENTICATION_FAILED"):
            smq.connect(address, config=login_of(admin, "wrong", authority)).topics()
        found = read_status(tmp_path / "data")
        assert found is not None
        unverified = ssl._create_unverified_context()  # As kubelet probes.
        with urlopen(f"https://{found[0].http}/health/ready", context=unverified) as answer:
            assert answer.status == 200
        metrics = Request(f"https://{found[0].http}/metrics", headers=TOKEN)
        with urlopen(metrics, context=unverified) as answer:
            assert answer.status == 200
    (users / "admin").write_text("changed")
    changed = login_of(admin, "changed", authority)
    with (
        started(described, tmp_path, LISTENS) as port,
        smq.connect(f"localhost:{port}", config=changed) as client,
    ):
        assert {*client.topics()} == {"orders", "wages"}
