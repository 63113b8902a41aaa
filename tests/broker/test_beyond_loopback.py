"""The guide from loopback to a network, followed in a network namespace of its own."""

import shutil
import subprocess
import sys
import tempfile

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def in_a_namespace(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["unshare", "--net", "--map-root-user", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )


@pytest.mark.skipif(
    not (shutil.which("unshare") and shutil.which("ip")) or in_a_namespace("true").returncode != 0,
    reason="needs unshare and ip, and a system that allows network namespaces",
)
def test_the_guide_leads_from_loopback_to_a_network() -> None:
    with tempfile.TemporaryDirectory(prefix="smq-") as directory:  # Sockets' paths are short.
        done = in_a_namespace(sys.executable, "-m", "tests.broker.beyond_loopback", directory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OUTSIDE://0.0.0.0:9192" in done.stdout
    assert "\nlistener OUTSIDE 10.99.0.1:9192\nready 127.0.0.1:9092\n" in done.stdout
    for line in (
        "created orders with 1 partition",
        "alice can log in with SCRAM-SHA-256 and SCRAM-SHA-512",
        "ALLOW User:alice from * WRITE on TOPIC orders (LITERAL)",
        "ALLOW User:alice from * READ on GROUP readers (LITERAL)",
        "python read: b'order 0'",
        "librdkafka read: b'order 1'",
    ):
        assert f"{line}\n" in done.stdout
    assert "User:alice may not DELETE TOPIC orders from 127.0.0.1: there are rules" in done.stdout
    # By `acl add`, and by `acl list`, which needs no login.
    assert done.stdout.count("ALLOW User:alice from * READ on TOPIC orders (LITERAL)\n") == 2
    assert ("kcat said: " in done.stdout) == (shutil.which("kcat") is not None)
