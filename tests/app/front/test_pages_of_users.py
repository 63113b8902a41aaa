"""The console in a browser, behind a login: each page for a user without rights, with some, with
all; skipped without a browser."""

from collections.abc import Iterator
from typing import Any

import pytest

from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import Operation, ResourceType
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.app.front.chromium import IN_A_BROWSER, chromium_running
from tests.app.front.console_pages import ALL, NOBODY, PAGES, SOME, is_fetched
from tests.app.http_client import ask
from tests.broker.guarded import allow
from tests.broker.users import add_users
from tests.front.users import as_user

pytest.importorskip("playwright", reason="pip install 'smq-broker[browser]'")
pytestmark = IN_A_BROWSER
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:root",
    "http.port": "0",
}
HOSTILE = b"<img src=x onerror=\"document.title='owned'\">"
FETCH = "async path => { const a = await fetch(path); return [a.status, await a.text()]; }"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("pages"), SETTINGS) as broker:
        add_users(broker.bootstrap, {name: name[::-1] for name in (NOBODY, SOME, ALL)})
        with broker.connect() as client:
            for topic in ("clicks", "wages"):
                client.create_topic(topic, 1)
                with client.producer() as producer:
                    producer.send(topic, b"secret-of-" + topic.encode(), key=HOSTILE).result(30)
                with client.consumer(topic, group=f"of-{topic}", start="earliest") as consumer:
                    eventually(lambda c=consumer: len(c.poll(1)) > 0, "a record")
                    consumer.commit()
        for kind, name in ((ResourceType.TOPIC, "clicks"), (ResourceType.GROUP, "of-clicks")):
            allow(broker, SOME, kind, name, Operation.READ)
        allow(broker, SOME, ResourceType.TOPIC, "filer/docs/clicks", Operation.READ)
        for name in ("clicks", "wages"):
            put = ask(broker, "PUT", f"/filer/docs/{name}", name.encode(), **as_user(ALL))
            assert put.status == 201
        yield broker


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with chromium_running() as browser:
        yield browser


@pytest.fixture
def page(chromium: Any, broker: SmqBroker) -> Iterator[Any]:
    """A page of a browser of its own, in which nobody has logged in."""
    context = chromium.new_context(base_url=f"http://{broker.status().http}")
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield page
    assert page.title() != "owned"
    context.close()


def log_in(page: Any, user: str, password: str | None = None) -> None:
    page.get_by_label("Name", exact=True).fill(user)
    page.get_by_label("Password").fill(user[::-1] if password is None else password)
    page.keyboard.press("Enter")


@pytest.mark.parametrize("user", [NOBODY, SOME, ALL])
def test_each_page_shows_what_its_user_may_see(page: Any, user: str) -> None:
    page.goto("/")
    log_in(page, user)
    page.wait_for_selector(f".who:has-text('{user}')")
    for path, users in PAGES.items():
        if is_fetched(path):
            status, shown = page.evaluate(FETCH, path)
        else:
            status, shown = page.goto(path).status, page.inner_text("main")
        assert status == (200 if user in users else 403), path
        shown = shown.replace(path, "")
        if user not in users:
            assert "this needs" in shown or "only super users" in shown, path
        elif user != ALL:
            assert "wages" not in shown, path
            assert "clicks" not in shown or user == SOME, path
        if "messages" in path and user in users:
            assert "secret-of" in shown, path


@pytest.mark.parametrize(
    "path", ["/console/login", "/users", "/sessions", "/denied", "/rules?name=clicks"]
)
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(
    page: Any, path: str, width: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.set_viewport_size({"width": width, "height": 800})
    page.goto("/")
    if path != "/console/login":
        log_in(page, ALL)
        page.wait_for_selector(".who")
        page.goto(path)
    for summary in page.query_selector_all("main > details > summary"):
        summary.click()
    found = axe.run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_login_goes_on_to_the_page_that_was_asked_for_and_ends(page: Any) -> None:
    page.goto("/topics/clicks/messages?text=secret")
    log_in(page, SOME, "wrong")
    page.wait_for_selector("text=the name or the password is wrong")
    log_in(page, SOME)
    page.wait_for_selector("text=found among")
    assert page.evaluate("document.cookie") == ""  # No script reads it.
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["expires"]) == (True, "Strict", -1)
    page.get_by_role("button", name="Log out").click()
    page.wait_for_selector("text=Password")
    page.goto("/topics")
    assert "/console/login" in page.url
    page.context.add_cookies([cookie])
    page.goto("/topics")
    assert "/console/login" in page.url


def test_an_action_is_what_its_user_may_do(page: Any) -> None:
    page.goto("/topics")
    log_in(page, SOME)
    page.get_by_text("Create a topic").click()
    page.locator("#new-name").fill("another")
    page.get_by_role("button", name="Create").click()
    page.wait_for_selector("main .said .warn")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_selector("text=Password")
    page.goto("/topics")
    log_in(page, ALL)
    page.get_by_text("Create a topic").click()
    page.locator("#new-name").fill("another")
    page.get_by_role("button", name="Create").click()
    page.wait_for_url("**/topics/another")


def test_a_page_that_stands_open_goes_to_the_login_when_its_session_ends(page: Any) -> None:
    page.goto("/")
    log_in(page, NOBODY)
    page.wait_for_selector("#cards")
    page.context.clear_cookies()
    page.wait_for_url("**/console/login*")
