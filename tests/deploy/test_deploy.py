"""What deploy/ names exists: metrics, settings, paths; and foreign tools accept it."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shm.warm import ship
from smq.cli.documentation.metrics import ONE_OF_EACH
from smq.front.metrics.page import page
from smq.front.slots import HEALTH_PATHS
from smq.model.config import SETTINGS, setting_of

DEPLOY = Path("deploy")
RULES = DEPLOY / "prometheus/smq.rules.yml"
METRIC = re.compile(r"\b(?:smq|kafka)_[a-z0-9_]+\b")


def exported() -> set[str]:
    families = list(text_string_to_metric_families(page(ONE_OF_EACH).decode()))
    histograms = {family.name for family in families if family.type == "histogram"}
    return histograms | {each.name for family in families for each in family.samples}


def expressions() -> Iterator[str]:
    yield from re.findall(r"expr: (?:>-\n\s+)?(.+(?:\n\s+[<>].+)?)", RULES.read_text())
    for panel in json.loads((DEPLOY / "grafana/smq.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_rules_and_dashboard_ask_for_metrics_that_there_are() -> None:
    asked = {name for each in expressions() for name in METRIC.findall(each)}
    assert len(asked) > 20
    assert asked <= exported()


def test_settings_and_options_are_the_brokers() -> None:
    named = {
        name
        for path in DEPLOY.rglob("*")
        if path.is_file()
        for name in re.findall(r"\bSMQ_[A-Z_]+[A-Z]\b", path.read_text())
    }
    assert "SMQ_ADVERTISE" in named
    for name in named:
        setting_of(name.removeprefix("SMQ_").replace("_", ".").lower())
    unit = (DEPLOY / "smq.service").read_text()
    [command] = re.findall(r"^ExecStart=.*$", unit, re.MULTILINE)
    options = {each.option for each in SETTINGS.values()} | {"--config"}
    assert set(re.findall(r"--[a-z-]+", command)) <= options


def test_probes_ask_paths_that_there_are() -> None:
    texts = [DEPLOY / "Dockerfile", DEPLOY / "helm/smq/templates/statefulset.yaml"]
    paths = {each for text in texts for each in re.findall(r"/health/\w+", text.read_text())}
    assert paths == HEALTH_PATHS - {"/health"}


def test_compose_publishes_to_other_hosts_only_the_port_that_asks_for_logins() -> None:
    """Grafana knows the names of all topics and groups."""
    published = re.findall(r'"([^"]*\d+:\d+)"', (DEPLOY / "compose.yml").read_text())
    assert len(published) == 3
    assert [each for each in published if not each.startswith("127.0.0.1:")] == ["9192:9192"]


def test_image_and_chart_open_nothing_by_themselves() -> None:
    assert "ALLOW" not in (DEPLOY / "Dockerfile").read_text() + (DEPLOY / "compose.yml").read_text()
    assert "allowPlaintext: false" in (DEPLOY / "helm/smq/values.yaml").read_text()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")
def test_prometheus_accepts_the_rules_and_they_fire(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "prometheus", tmp_path, dirs_exist_ok=True)
    for secret in ("ca.pem", "prometheus.token"):
        (tmp_path / secret).touch()
    config = tmp_path / "prometheus.yml"
    config.write_text(config.read_text().replace("/run/secrets/prometheus", str(tmp_path)))
    for command in (
        ["check", "config", str(config)],
        ["test", "rules", str(DEPLOY / "prometheus/smq.rules.test.yml")],
    ):
        done = subprocess.run(
            ["promtool", *command], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_accepts_the_unit() -> None:
    command = ["systemd-analyze", "verify", str(DEPLOY / "smq.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
@pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm")
def test_helm_accepts_the_chart() -> None:
    chart = str(DEPLOY / "helm/smq")
    for command in (["lint", "--strict", chart], ["template", "smq", chart]):
        done = subprocess.run(
            ["helm", *command], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
    wrong = ["helm", "template", "smq", chart, "--set", "shards=0"]
    assert subprocess.run(wrong, capture_output=True, check=False, timeout=60).returncode != 0


def test_the_image_brings_linked_kernels() -> None:
    """It has no compiler that could link them later."""
    _, build, image = (DEPLOY / "Dockerfile").read_text().split("\nFROM ")
    [python] = re.findall(r"^python:(3\.\d+)-slim AS build\n", build)
    assert image.startswith(f"python:{python}-slim\n")
    packages = f"/install/lib/python{python}/site-packages"
    assert f"\nRUN cd {packages} && PYTHONPATH=. python -m {ship.__name__} shm\n" in build


def test_the_directories_of_unit_image_and_chart_are_closed_to_others() -> None:
    """Door fault 8; a volume as the chart asks for is tested in test_modes.py."""
    unit = (DEPLOY / "smq.service").read_text()
    for line in ("StateDirectoryMode=0700", "CacheDirectoryMode=0700", "UMask=0077"):
        assert f"\n{line}\n" in unit
    assert "install -d -m 0700 -o smq /data /cache" in (DEPLOY / "Dockerfile").read_text()
    # All of our caches, by our digests: a NUMBA_CACHE_DIR would have Numba's alone.
    assert "\nEnvironment=XDG_CACHE_HOME=/var/cache/smq\n" in unit
    assert "\nENV XDG_CACHE_HOME=/cache " in (DEPLOY / "Dockerfile").read_text()
    chart = (DEPLOY / "helm/smq/templates/statefulset.yaml").read_text()
    assert "\n      automountServiceAccountToken: false" in chart, (
        "a login at Kubernetes, for nothing"
    )
    assert "\n      enableServiceLinks: false" in chart, "SMQ_SERVICE_HOST is no setting"
    assert "fsGroupChangePolicy: OnRootMismatch" in chart, "each start would open all to the group"
