"""A webhook gets alerts; one that does not answer harms nothing."""

import errno
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from smq.app.front.webhook import TRIES, WAITING_MAX, Webhook

DEADLINE_S = 20.0


def eventually(check: object, seconds: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + seconds
    assert callable(check)
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_event_is_posted_as_json() -> None:
    got: list[object] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_request(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        Webhook(f"http://127.0.0.1:{server.server_port}/").tell({"group": "g"})
        eventually(lambda: got)
        server.shutdown()
        thread.join()
    assert got == [{"group": "g"}]


def test_a_redirect_is_not_followed(capsys: pytest.CaptureFixture[str]) -> None:
    """Door fault 11: the target would be one that no operator has set."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            self.do_POST()

        def log_request(self, *_: object) -> None:
            pass

    said = ""

    def is_given_up() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return "an alert was not sent to the webhook: it answers 302" in said

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        Webhook(f"http://127.0.0.1:{server.server_port}/hook", pause_s=0).tell({"group": "g"})
        eventually(is_given_up)
        server.shutdown()
        thread.join()
    assert asked == ["/hook"] * TRIES


def test_a_hanging_webhook_delays_no_alert_and_keeps_few_waiting(
    capsys: pytest.CaptureFixture[str],
) -> None:
    go, sent = threading.Event(), []

    def hangs(body: bytes) -> None:
        go.wait(DEADLINE_S)
        sent.append(body)

    webhook = Webhook("http://hangs", hangs)
    for number in range(3 * WAITING_MAX):
        webhook.tell({"number": number})
    assert "the webhook does not answer: an alert was not sent" in capsys.readouterr().err
    go.set()
    eventually(lambda: len(sent) >= WAITING_MAX)
    assert len(sent) <= WAITING_MAX + 1


def test_one_that_fails_is_tried_again_and_then_given_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tries: list[bytes] = []

    def fails(body: bytes) -> None:
        tries.append(body)
        if b"lost" in body or len(tries) < 2:
            raise OSError(errno.ECONNREFUSED, "s3cret")

    webhook = Webhook("http://fails", fails, pause_s=0)
    webhook.tell({"event": "kept"})
    webhook.tell({"event": "lost"})
    eventually(lambda: len(tries) == 2 + TRIES)
    eventually(lambda: "to the webhook: Connection refused" in capsys.readouterr().err, 5)


@pytest.mark.parametrize(
    "url",
    [
        *("http://alerts:s3cret@127.0.0.1/x", "http://127.0.0.1/hook?token=s3cret x"),
        *("http://127.0.0.1:1/hook/s3cret\u00e9", "http://[s3cret/x", "s3cret"),
        *("http://s3cret.invalid/", "http://127.0.0.1:1/s3cret"),
    ],
)
def test_a_failed_webhook_is_reported_without_its_url(
    capsys: pytest.CaptureFixture[str], url: str
) -> None:
    """Door fault 7: exceptions repeat the URL that they are about."""
    said = ""

    def is_said() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said.endswith("\n")

    Webhook(url, pause_s=0).tell({"group": "g"})
    eventually(is_said)
    assert "an alert was not sent to the webhook: " in said
    assert "s3cret" not in said


def test_an_answer_that_is_no_http_ends_nothing() -> None:
    """Door fault 11: the thread died, and no later alert was sent."""
    got: list[bytes] = []

    def serve(server: socket.socket) -> None:
        while len(got) <= TRIES:
            connection, _ = server.accept()
            with connection:
                got.append(connection.recv(65536))
                connection.sendall(b"SSH-2.0-x\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        webhook = Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/", pause_s=0)
        webhook.tell({"n": 1})
        webhook.tell({"n": 2})
        eventually(lambda: len(got) > TRIES)
        thread.join()
