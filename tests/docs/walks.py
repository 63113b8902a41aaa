"""The walks through guides, in the namespace of tests.docs.guides."""

import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import create_default_context

import yaml

import smq
from tests.docs.guides import HOST, Guide, eventually, place, run, running, wait_for

BOOTSTRAP = f"{HOST}:9192"


@contextmanager
def team(home: Path) -> Iterator[Guide]:
    """The guide of the team up to the properties; the broker runs until the block ends."""
    guide = Guide("team.md", home)
    guide.run()
    assert "alice: the password is set\n" in guide.run()
    with running(guide.next(), home, home / "broker.out"):
        wait_for(f"smq topic list --bootstrap {home}/var/lib/smq", home)
        guide.run()
        yield guide


def team_of_three(home: Path) -> None:
    """docs/team.md."""
    with team(home) as guide:
        for _ in ("carol", "alice", "bob"):
            guide.run()
        writing, _, start = guide.next().rpartition("\nprometheus ")
        run(writing, home)
        if shutil.which("prometheus") is not None:
            _scrape(f"prometheus {start}", home)
        else:
            _scrape_by_file(place(home))
        guide.run()
        guide.ends()


def _scrape(start: str, home: Path) -> None:
    with running(start, home, home / "prometheus.out"):
        ask = "curl --silent 'http://127.0.0.1:9090/api/v1/query?query=smq_ready'"
        sys.stdout.write(wait_for(ask, home, until='"value"'))
    sys.stdout.write("scraped by Prometheus\n")


def _scrape_by_file(directory: Path) -> None:
    """As Prometheus would, by what its file says."""
    [job] = yaml.safe_load((directory / "prometheus.yml").read_text())["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    token = (directory / job["authorization"]["credentials_file"]).read_text()
    authority = directory / job["tls_config"]["ca_file"]
    status, page = _metrics(f"{job['scheme']}://{target}/metrics", token, authority)
    assert (status, b"\nsmq_ready 1" in page) == (200, True)
    sys.stdout.write("scraped by its file\n")


def _metrics(url: str, token: str, authority: Path) -> tuple[int, bytes]:
    context = create_default_context(cafile=authority)
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token.strip()}"})
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, b""


# --- rotation ------------------------------------------------------------------------------------


def rotation(home: Path) -> None:
    """docs/rotation.md, once the people have what they get."""
    with team(home) as before:
        before.run()
        guide = Guide("rotation.md", home)
        os.chdir(place(home) / "people")
        _certificates(guide)
        _password(guide)
        _token(guide, place(home))
        guide.ends()


def _connected(properties: str) -> "smq.Client":
    return smq.connect(BOOTSTRAP, config=properties)


def _logs_in(properties: str) -> bool:
    try:
        with _connected(properties) as client:
            return [*client.topics()] == ["orders"]
    except smq.BrokerError as refusal:
        assert "SASL_AUTHENTICATION_FAILED" in str(refusal)  # noqa: PT017  (else it is raised)
        return False


def _certificates(guide: Guide) -> None:
    """Another certificate, both authorities, and the second of them."""
    with _connected("alice.properties") as open_before:
        for _ in range(3):
            guide.run()
            assert [*open_before.topics()] == ["orders"]
            assert _logs_in("alice.properties")
    sys.stdout.write("certificates are replaced\n")


def _password(guide: Guide) -> None:
    with _connected("alice.properties") as old:
        guide.run()
        assert [*old.topics()] == ["orders"]
        assert _logs_in("alice.properties")
        assert _logs_in("alice-2.properties")
        with _connected("alice-2.properties") as new:
            guide.run()
            assert [*new.topics()] == ["orders"]
    assert not _logs_in("alice.properties")
    assert _logs_in("alice-2.properties")
    sys.stdout.write("the password is replaced\n")


def _token(guide: Guide, directory: Path) -> None:
    def status(token: str) -> int:
        return _metrics(f"https://{HOST}:8080/metrics", token, directory / "people/ca.pem")[0]

    old = (directory / "prometheus.token").read_text()
    assert status(old) == 200
    guide.run()
    new = (directory / "prometheus.token").read_text()
    assert (status(old), status(new)) == (200, 200)
    guide.run()
    eventually(lambda: status(old) == 401, "the old token is taken no more")
    assert status(new) == 200
    sys.stdout.write("the token is replaced\n")
