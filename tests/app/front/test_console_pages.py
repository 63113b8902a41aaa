"""The console in a browser: each page as a person and as axe sees it; skipped without a browser."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from smq.client.client import Client
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.app.front.chromium import IN_A_BROWSER, chromium_running
from tests.app.http_client import console_token

pytest.importorskip("playwright", reason="pip install 'smq-broker[browser]'")
pytestmark = IN_A_BROWSER
HOSTILE = b"<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 900}
PAGES = [
    "/",
    "/topics",
    "/topics/clicks",
    "/topics/clicks/messages",
    "/topics/clicks/messages/0/0",
    "/groups",
    "/groups/one?group=readers",
    "/files",
    "/files?in=payloads/kafka/clicks/",
    "/settings?only=set",
    "/topics/nothing",
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    settings = {"http.port": "0"}
    with (
        SmqBroker(tmp_path_factory.mktemp("pages"), settings) as broker,
        broker.connect() as client,
    ):
        client.create_topic("clicks", 3)
        with client.producer() as producer:
            for number in range(120):
                producer.send("clicks", b'{"n": %d}' % number, key=HOSTILE, partition=number % 3)
            producer.send("clicks", HOSTILE, headers=[(HOSTILE.decode(), HOSTILE)], partition=0)
        with _reading(client):
            yield broker


def _reading(client: Client) -> Any:
    class Reading:
        """A member of the group, for as long as the block lasts."""

        def __enter__(self) -> None:
            self._consumer = client.consumer("clicks", group="readers", start="earliest")
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._run)
            self._thread.start()

        def _run(self) -> None:
            with self._consumer as consumer:
                while not self._stop.is_set():
                    with consumer.poll(0.2):
                        pass
                    consumer.commit()

        def __exit__(self, *_: object) -> None:
            self._stop.set()
            self._thread.join()

    return Reading()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with chromium_running() as browser:
        yield browser


@pytest.fixture
def token(broker: SmqBroker) -> str:
    return console_token(broker)


class Tab:
    """A page of a browser of its own; what goes wrong in it is kept."""

    def __init__(self, chromium: Any, broker: SmqBroker, size: dict[str, int], scheme: str) -> None:
        self._context = chromium.new_context(viewport=size, color_scheme=scheme)
        self.page = self._context.new_page()
        self.page.set_default_timeout(20_000)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._note)
        self._address = f"http://{broker.status().http}"

    def _note(self, message: Any) -> None:
        # A page that is not there is one of those that are looked at.
        if message.type == "error" and "404" not in message.text:
            self.wrong.append(message.text)

    def go(self, path: str) -> None:
        self.page.goto(self._address + path)
        self.page.wait_for_load_state("networkidle")

    def close(self) -> None:
        self._context.close()


@pytest.fixture(params=[("light", "desk"), ("dark", "phone")], ids="-".join)
def tab(request: pytest.FixtureRequest, chromium: Any, broker: SmqBroker) -> Iterator[Tab]:
    scheme, size = request.param
    tab = Tab(chromium, broker, DESK if size == "desk" else PHONE, scheme)
    yield tab
    assert tab.wrong == []
    assert tab.page.title() != "owned"
    tab.close()


@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(tab: Tab, path: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    tab.go(path)
    for summary in tab.page.query_selector_all("main > details > summary"):
        summary.click()
    found = axe.run(tab.page)
    assert found.violations_count == 0, found.generate_report()
    wide = tab.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0


def test_charts_are_drawn_and_move_on(tab: Tab) -> None:
    tab.go("/")
    tab.page.wait_for_selector(".chart canvas")
    points = "document.querySelector('.chart').plot.data[0].length"
    before = tab.page.evaluate(points)
    # Not `wait_for_function`: the console's policy forbids the eval that it needs.
    eventually(lambda: tab.page.evaluate(points) > before, "a point is added")


def test_the_token_of_the_address_is_kept_and_leaves_the_address(tab: Tab, token: str) -> None:
    tab.go(f"/#token={token}")
    assert "#" not in tab.page.url
    assert tab.page.inner_text("#token-state") == "known"
    tab.go("/topics")
    assert tab.page.inner_text("#token-state") == "known"


def test_a_record_is_produced_found_and_opened_by_keyboard(tab: Tab, token: str) -> None:
    page = tab.page
    tab.go(f"/topics/clicks/messages#token={token}")
    page.get_by_text("Produce a record").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Key (empty: none)").fill("a-key")
    page.locator("#p-value").fill('{"needle": [1, 2]}')
    page.get_by_role("button", name="Produce").press("Enter")
    page.wait_for_selector("text=Appended to partition")
    page.get_by_label("Text", exact=True).fill("needle")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=found among")
    page.locator("table summary").first.press("Enter")
    page.wait_for_selector("pre:has-text('needle')")


def test_without_the_token_the_console_says_what_to_do(tab: Tab) -> None:
    tab.go("/topics")
    tab.page.get_by_text("Create a topic").click()
    tab.page.get_by_label("Name", exact=True).fill("unwanted")
    tab.page.get_by_role("button", name="Create").click()
    tab.page.wait_for_selector("text=open the address with the token")
    tab.wrong = [each for each in tab.wrong if "403" not in each]


def test_a_reset_is_previewed_and_refused_while_members_read(tab: Tab, token: str) -> None:
    page = tab.page
    tab.go(f"/groups/one?group=readers#token={token}")
    assert page.locator(".cells li.c0").count() == 3
    page.get_by_text("Reset its offsets").click()
    page.get_by_label("To: earliest").fill("earliest")
    page.get_by_role("button", name="Preview").click()
    page.wait_for_selector("text=Nothing has changed yet")
    page.get_by_role("button", name="Commit these offsets").click()
    page.wait_for_selector("text=stop its consumers first")
    tab.wrong = [each for each in tab.wrong if "409" not in each]


def test_pages_can_be_read_without_scripts(chromium: Any, broker: SmqBroker) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"http://{broker.status().http}/topics/clicks/messages")
    page.get_by_label("Text", exact=True).fill('"n": 11')
    page.get_by_role("button", name="Show").click()
    assert "11 records found" in page.inner_text("main") or "12 records found" in page.inner_text(
        "main"
    )
    context.close()
