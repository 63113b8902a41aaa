"""nginx with our configuration in front of a broker's HTTP door."""

import http.client
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.broker.users import add_users
from tests.front.users import as_user

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="apt-get install nginx"),
]
NAME = socket.gethostname()  # SMQ knows it, and clients need not resolve it.
TIMEOUT_S = 30


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def answers(port: int) -> bool:
    with closing(socket.socket()) as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where nginx listens, in front of a broker with rules."""
    home = tmp_path_factory.mktemp("nginx")
    certs, port = home / "certs", free_port()
    assert CliRunner().invoke(app, ["certs", str(certs), "--host", NAME]).exit_code == 0
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:root",
        "http.port": "0",
        "http.host": "127.0.0.1",
    }
    with SmqBroker(home / "broker", settings) as broker:
        add_users(broker.bootstrap, {"root": "toor", "bob": "bob"})
        behind = broker.status().http.rpartition(":")[2]
        text = Path("deploy/nginx.conf").read_text()
        text = text.replace("queue.example", NAME)
        text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
        text = text.replace("/etc/smq/certs", str(certs))
        text = text.replace("127.0.0.1:8080", f"127.0.0.1:{behind}")
        text = text.replace("rate=30r/s", "rate=1r/s")  # A busy machine cannot ask more often.
        (home / "nginx.conf").write_text(f"pid {home}/pid;\ndaemon off;\n{text}")
        server = subprocess.Popen(
            ["nginx", "-p", str(home), "-e", str(home / "log"), "-c", str(home / "nginx.conf")]
        )
        try:
            eventually(lambda: answers(port), "nginx listens")
            yield port
        finally:
            server.terminate()
            server.wait(TIMEOUT_S)


def ask(
    port: int, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any]:
    """Status and JSON; in TLS, by the broker's name."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # Browsers verify it.
    with closing(
        http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_S, context=context)
    ) as connection:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"host": NAME, **named})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")


def test_users_log_in_through_it(port: int) -> None:
    assert ask(port, "GET", "/health/live") == (200, {"live": True})
    status, told = ask(port, "GET", "/health", **as_user("root"))
    assert (status, told["ready"]) == (200, True)
    assert ask(port, "GET", "/health", **as_user("bob"))[0] == 403
    assert ask(port, "GET", "/health")[0] == 401


def test_a_large_file_passes_and_a_page_of_the_same_origin_may_send_it(port: int) -> None:
    body = bytes(range(256)) * 20_000
    ours = {"origin": f"https://{NAME}", "sec-fetch-site": "same-origin", **as_user("root")}
    assert ask(port, "PUT", "/filer/docs/a", body, **ours)[0] == 201
    for origin in (f"http://{NAME}:81", "https://evil.example"):
        theirs = {**ours, "origin": origin}
        assert ask(port, "PUT", "/filer/docs/b", body, **theirs)[0] == 403


def test_an_address_that_asks_too_often_is_stopped_and_then_served_again(port: int) -> None:
    """SMQ sees one address for all: strangers kept users from their first login."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with closing(
        http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_S, context=context)
    ) as connection:

        def status() -> int:
            connection.request("GET", "/health/live", headers={"host": NAME})
            response = connection.getresponse()
            response.read()
            return response.status

        eventually(lambda: 429 in {status() for _ in range(20)}, "nginx stops who asks on and on")
        eventually(lambda: status() == 200, "there is time for more")
