"""What a page of another origin reaches, in a browser; skipped without one."""

import socket
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.app.front.chromium import IN_A_BROWSER, chromium_running
from tests.app.http_client import ask
from tests.broker.users import add_users

pytest.importorskip("playwright", reason="pip install 'smq-broker[browser]'")
pytestmark = IN_A_BROWSER
PLAIN = ["/", "/topics", "/topics/clicks", "/groups", "/groups/one?group=g", "/files", "/settings"]
READS = [
    *PLAIN,
    *("/topics/clicks/messages", "/topics/clicks/messages?text=pin%3D4711"),
    *("/topics/clicks/messages/0/0", "/topics/clicks/messages/0/0/value"),
    *("/files/one?key=docs/a", "/console/rates", "/console/lag", "/console/static/console.js"),
    *("/health", "/health/live", "/health/ready", "/metrics", "/filer/", "/filer/docs/a"),
    *("/debug", "/debug/logs", "/debug/partitions", "/debug/slow", "/debug/stacks"),
]
OPEN = ("/health", "/metrics", "/filer/", "/console/static/")
CHANGES = [
    *(("POST", path) for path in ("/sql", "/topics", "/settings")),
    *(("POST", f"/topics/clicks/{verb}") for verb in ("settings", "partitions", "delete")),
    *(("POST", path) for path in ("/topics/clicks/messages", "/groups/reset", "/groups/delete")),
    *(("PUT", "/filer/docs/b"), ("DELETE", "/filer/docs/a")),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("foreign"), {"http.port": "0"}) as broker:
        with broker.connect() as client:
            client.create_topic("clicks", 1)
            with client.producer() as producer:
                producer.send("clicks", b"pin=4711")
        assert ask(broker, "PUT", "/filer/docs/a", body=b"a").status == 201
        yield broker


@pytest.fixture(scope="module")
def foreign_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page that another server of this host serves."""
    folder = tmp_path_factory.mktemp("site")
    Path(folder, "index.html").write_text("<!doctype html><title>foreign</title>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with chromium_running() as browser:
        yield browser


@pytest.fixture
def page(chromium: Any, foreign_page: str) -> Iterator[Any]:
    """A page that stands on the other server, in a context of its own."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(foreign_page)
    yield page
    context.close()


def statuses(  # noqa: PLR0913, PLR0917  (a page, and what it asks)
    page: Any, broker: SmqBroker, script: str, path: str, method: str, host: str = "127.0.0.1"
) -> list[int]:
    """What the broker answers to what a script of the page asks: the statuses.

    Chromium hides an answer that may not become a part of the page; its debugger does not.
    """
    address = f"http://{host}:{broker.status().http.rpartition(':')[2]}"
    asked: set[str] = set()
    answered: list[tuple[str, int]] = []  # The debugger may tell of an answer before its request.

    def note_request(event: dict[str, Any]) -> None:
        if event["request"]["url"] == address + path:  # Not the icon that a browser asks for too.
            asked.add(event["requestId"])

    def note_answer(event: dict[str, Any]) -> None:
        answered.append((event["requestId"], event["statusCode"]))

    def found() -> list[int]:
        page.wait_for_timeout(10)
        return [status for request, status in answered if request in asked]

    debugger = page.context.new_cdp_session(page)
    debugger.on("Network.requestWillBeSent", note_request)
    debugger.on("Network.responseReceivedExtraInfo", note_answer)
    debugger.send("Network.enable")
    page.evaluate(script, {"url": address + path, "method": method})
    eventually(found, "an answer")
    debugger.detach()
    return found()


FETCH = """async ({url, method}) => {
    const body = method == 'POST' ? "SELECT * FROM clicks WHERE value LIKE 'pin=4%'" : undefined;
    try { await fetch(url, {method, body, mode: 'no-cors'}); } catch {}
}"""
PREFLIGHT = """async ({url, method}) => {
    try { await fetch(url, {method, body: method == 'PUT' ? 'x' : undefined}); } catch {}
}"""
WITH_COOKIES = """async ({url, method}) => {
    const body = method == 'POST' ? new URLSearchParams({name: 'new'}) : undefined;
    try { await fetch(url, {method, body, mode: 'no-cors', credentials: 'include'}); } catch {}
}"""
IMAGE = "({url}) => { new Image().src = url; }"
FRAME = """({url}) => {
    const f = document.createElement('iframe'); f.src = url; document.body.append(f);
}"""
FORM = """({url}) => {
    const f = document.createElement('form'); f.method = 'POST'; f.action = url;
    f.enctype = 'text/plain'; document.body.append(f); f.submit();
}"""
LINK = "({url}) => { location.href = url; }"


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize("script", [FETCH, IMAGE, FRAME], ids=["fetch", "image", "frame"])
def test_a_foreign_page_reads_nothing(page: Any, broker: SmqBroker, script: str, path: str) -> None:
    """Door fault 1."""
    assert set(statuses(page, broker, script, path, "GET")) == {403}


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize("host", ["0.0.0.0", "[::ffff:7f00:1]", socket.gethostname()])
def test_a_foreign_page_reads_nothing_where_browsers_send_no_mark(
    page: Any, broker: SmqBroker, host: str, path: str
) -> None:
    """Door fault 1, its sibling: Chromium sends neither Sec-Fetch-Site nor Origin to these."""
    if path.startswith(OPEN) and host == socket.gethostname():
        return  # As curl's: quick, and no other page may use the answer.
    for script in (FETCH, IMAGE, FRAME, LINK):
        assert set(statuses(page, broker, script, path, "GET", host)) <= {403, 421}


@pytest.mark.parametrize("path", READS)
def test_a_link_opens_plain_pages_only(page: Any, broker: SmqBroker, path: str) -> None:
    """Door fault 1."""
    is_plain = path in PLAIN or path.startswith("/health")
    assert (statuses(page, broker, LINK, path, "GET")[0] != 403) is is_plain


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_foreign_page_changes_nothing(
    page: Any, broker: SmqBroker, method: str, path: str
) -> None:
    """Door fault 1."""
    scripts = [FETCH, FORM] if method == "POST" else [PREFLIGHT]
    for host in ("127.0.0.1", "0.0.0.0", socket.gethostname()):
        for script in scripts:
            assert set(statuses(page, broker, script, path, method, host)) <= {403, 421}
    assert ask(broker, "GET", "/filer/docs/a").body == b"a"
    assert ask(broker, "GET", "/filer/docs/b").status == 404


def test_our_own_page_reads_what_it_shows(page: Any, broker: SmqBroker) -> None:
    page.goto(f"http://{broker.status().http}/topics")
    assert statuses(page, broker, FETCH, "/topics/clicks/messages", "GET") == [200]
    assert statuses(page, broker, LINK, "/topics/clicks/messages/0/0", "GET")[0] == 200


# --- with users ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:root",
        "http.port": "0",
    }
    with SmqBroker(tmp_path_factory.mktemp("guarded"), settings) as broker:
        add_users(broker.bootstrap, {"root": "toor"})
        with broker.connect() as client:
            client.create_topic("clicks", 1)
            with client.producer() as producer:
                producer.send("clicks", b"pin=4711")
        yield broker


@pytest.fixture
def page_of_root(chromium: Any, guarded: SmqBroker, foreign_page: str) -> Iterator[Any]:
    """A foreign page in a browser where a super user has a session, and a password for HTTP Basic
    is kept."""
    context = chromium.new_context(http_credentials={"username": "root", "password": "toor"})
    page = context.new_page()
    page.goto(f"http://{guarded.status().http}/")
    page.get_by_label("Name", exact=True).fill("root")
    page.get_by_label("Password").fill("toor")
    page.keyboard.press("Enter")
    page.wait_for_selector(".who:has-text('root')")
    page.goto(foreign_page)
    yield page
    context.close()


@pytest.mark.parametrize("path", [*READS, "/users", "/rules", "/sessions", "/denied"])
def test_a_foreign_page_reads_nothing_with_a_user_s_session_and_password(
    page_of_root: Any, guarded: SmqBroker, path: str
) -> None:
    for script in (FETCH, WITH_COOKIES, IMAGE, FRAME):
        assert set(statuses(page_of_root, guarded, script, path, "GET")) == {403}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *CHANGES,
        *(("POST", path) for path in ("/console/login", "/console/logout")),
        *(("POST", path) for path in ("/users/delete", "/sessions/end")),
    ],
)
def test_a_foreign_page_changes_nothing_with_a_user_s_session_and_password(
    page_of_root: Any, guarded: SmqBroker, method: str, path: str
) -> None:
    scripts = [FETCH, WITH_COOKIES, FORM] if method == "POST" else [PREFLIGHT]
    for script in scripts:
        assert set(statuses(page_of_root, guarded, script, path, method)) == {403}
    page_of_root.goto(f"http://{guarded.status().http}/topics/clicks/messages")
    assert "pin=4711" in page_of_root.inner_text("main")


@pytest.mark.parametrize(
    "path", ["/topics/clicks/messages", "/topics/clicks/messages/0/0/value", "/console/rates"]
)
def test_a_foreign_link_opens_no_record_with_a_user_s_session(
    page_of_root: Any, guarded: SmqBroker, path: str
) -> None:
    """Another port of the host is the same site for cookies."""
    assert statuses(page_of_root, guarded, LINK, path, "GET") == [403]
