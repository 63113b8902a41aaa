"""A Prometheus as Debian ships it scrapes a broker, and a rule fires when a process dies."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smq.app.process.clock import monotonic_ms
from smq.testing.smq_broker import SmqBroker

DEADLINE_MS = 120_000
PROMETHEUS = shutil.which("prometheus")
RULES = Path("deploy/prometheus/smq.rules.yml").absolute()
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(PROMETHEUS is None, reason="apt-get install prometheus"),
]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline_ms = monotonic_ms() + DEADLINE_MS
    while not true():
        assert monotonic_ms() < deadline_ms, what
        select.select([], [], [], 0.2)


def asked(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10) as answer:
        return json.load(answer)["data"]


def test_a_fresh_prometheus_scrapes_a_broker_and_its_rules_fire(tmp_path: Path) -> None:
    port = free_port()
    with SmqBroker(tmp_path / "smq", {"http.port": "0"}) as broker:
        target = broker.status().http
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{RULES}]\n"
            f'scrape_configs: [{{job_name: smq, static_configs: [{{targets: ["{target}"]}}]}}]\n'
        )
        command = [
            *(str(PROMETHEUS), f"--config.file={tmp_path / 'prometheus.yml'}"),
            *(f"--storage.tsdb.path={tmp_path / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}"),
        ]
        log = (tmp_path / "prometheus.log").open("w")
        with subprocess.Popen(command, stdout=log, stderr=log) as prometheus:
            try:
                _watch(port, broker)
            finally:
                prometheus.terminate()
        log.close()


def _watch(port: int, broker: SmqBroker) -> None:
    def result(query: str) -> list[Any]:
        try:
            return list(asked(port, f"query?query={query}")["result"])
        except OSError:  # It starts.
            return []

    restarts = "smq_process_restarts_total%7Bprocess=%22sealer%22%7D"
    eventually(lambda: bool(result(restarts)), "the broker is scraped")
    assert result("smq_ready")[0]["value"][1] == "1"
    health = asked(port, "targets")["activeTargets"]
    assert [each["health"] for each in health] == ["up"]
    groups = asked(port, "rules")["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
    os.kill(broker.status().processes["sealer"].pid, signal.SIGKILL)

    def fires() -> bool:
        alerts = asked(port, "alerts")["alerts"]
        found = {(each["labels"]["alertname"], each["state"]) for each in alerts}
        return ("SmqRestarts", "firing") in found

    eventually(fires, "SmqRestarts fires")
