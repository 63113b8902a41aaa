"""Records: listed, searched, looked at, downloaded, produced."""

import asyncio
import gc
import json
import re
import threading
from typing import Any, ClassVar

import pytest
from starlette.types import ASGIApp, Message

from smq.front.console.console import DOWNLOADS_MAX
from smq.front.console.desk import NewRecord, PassedOver, ShownRecord
from smq.front.console.pages.messages import SMALL_BYTES, wanted_of
from smq.front.console.text import SHOWN_BYTES_MAX
from smq.model.references import Reference
from smq.testing.memory_store import MemoryStore
from tests.front.asgi import call, front, scope_of
from tests.front.console.fake_desk import HOSTILE, Browser, FakeDesk, seen

PATH = "/topics/clicks/messages"


def test_a_request_says_which_records_it_wants() -> None:
    query = {"partition": "3", "start": "@5", "limit": "25", "text": "x", "cursor": "3.7-4.9"}
    wanted = wanted_of("clicks", query)
    assert (wanted.partition, wanted.start, wanted.limit) == (3, "@5", 25)
    assert wanted.cursor == {3: 7, 4: 9}
    assert wanted.is_search
    assert wanted_of("clicks", {}).start == "newest"


@pytest.mark.parametrize(
    "query",
    [
        {"partition": "x"},
        {"limit": "501"},
        {"limit": "0"},
        {"cursor": "1"},
        {"cursor": "1.x"},
        {"cursor": "-".join(f"{n}.1" for n in range(1000))},
    ],
)
def test_a_meaningless_query_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        wanted_of("clicks", query)


def test_hostile_records_are_text() -> None:
    record = seen(5, HOSTILE.encode(), key=HOSTILE.encode(), headers=(("h\udc80", b"\xff"),))
    browser = Browser(FakeDesk([record]))
    for path in (PATH, f"{PATH}/0/5", f"{PATH}/0/5?part=1"):
        page = browser.text(path)
        assert "<script>alert" not in page
        assert "&lt;script&gt;" in page
        assert "\u202e" not in page
        assert "u{202e}" in page
    assert "u{dc80}" in page


def test_a_search_says_how_far_it_came_and_goes_on() -> None:
    browser = Browser(FakeDesk([seen(5, b"{}")], cursor={0: 4, 2: 9}))
    page = browser.text(f"{PATH}?text=a%26b&start=earliest")
    assert "found among 7 (70 B)" in page
    assert "text=a%26b&amp;start=earliest&amp;cursor=0.4-2.9" in page
    assert browser.desk.done[0].text == "a&b"
    assert "There are no more" in Browser(FakeDesk([seen(5, b"{}")])).text(PATH)


def test_a_page_names_the_batches_that_a_search_passed_over() -> None:
    page = Browser(FakeDesk([seen(5, b"{}")], beyond=[PassedOver(2, 10, 20)])).text(PATH)
    assert "Partition 2 has a batch at offsets 10 to 19 that inflates too far" in page
    assert "among the first 100 of a record" in page


def test_a_download_names_them_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(FakeDesk([seen(5, b"a"), seen(6, b"b")], beyond=[PassedOver(2, 10, 20)]))
    body = browser.get(f"{PATH}?as=ndjson").body
    *records, passed = map(json.loads, body.splitlines())
    assert [each["value"] for each in records] == ["a", "b"]
    assert passed == {"topic": "clicks", "partition": 2, "passed_over": {"start": 10, "end": 20}}
    monkeypatch.setattr("smq.front.console.pages.messages.PIECE_BYTES", 1)
    assert browser.get(f"{PATH}?as=ndjson").body == body


class Noted(bytes):
    """Bytes that note which threads look at them."""

    threads: ClassVar[set[int]] = set()

    def __getitem__(self, place: Any) -> Any:
        self.threads.add(threading.get_ident())
        return super().__getitem__(place)

    def decode(self, *how: Any, **named: Any) -> str:
        self.threads.add(threading.get_ident())
        return super().decode(*how, **named)


@pytest.mark.parametrize("path", [PATH, f"{PATH}?as=ndjson", f"{PATH}/0/5", f"{PATH}/0/5?part=1"])
def test_pages_and_lines_are_made_in_threads(path: str) -> None:
    """Five hundred records of control characters, or one long key, held the loop for a second."""
    browser = Browser(FakeDesk([seen(5, Noted(b"{}"), key=Noted(b"k"))]))
    Noted.threads.clear()
    assert browser.get(path).status == 200
    assert Noted.threads
    assert threading.get_ident() not in Noted.threads


def test_a_long_key_is_cut_on_its_records_page() -> None:
    key = b"k" * (SHOWN_BYTES_MAX + 1)
    browser = Browser(FakeDesk([seen(5, b"v", key=key, key_bytes=len(key))]))
    page = browser.text(f"{PATH}/0/5?part=1")
    assert "k" * SHOWN_BYTES_MAX in page
    assert "k" * len(key) not in page


def test_records_are_downloaded_as_lines_of_json_and_values_as_they_are() -> None:
    browser = Browser(FakeDesk([seen(5, b"\xff", headers=(("h", b"1"),)), seen(6, None)]))
    answer = browser.get(f"{PATH}?as=ndjson")
    assert answer.headers["content-disposition"] == 'attachment; filename="clicks.ndjson"'
    first, second = map(json.loads, answer.body.splitlines())
    assert first["value"] == {"base64": "/w=="}
    assert first["headers"] == [["h", "1"]]
    assert second["value"] is None
    value = browser.get(f"{PATH}/0/5/value")
    assert value.body == b"\xff"
    assert value.headers["content-type"] == "application/octet-stream"
    assert browser.get(f"{PATH}/0/7/value").status != 200


def test_a_part_of_a_value_is_not_downloaded_as_all_of_it() -> None:
    browser = Browser(FakeDesk([seen(5, b"first", value_bytes=9_000_000)]))
    answer = browser.get(f"{PATH}/0/5/value")
    assert answer.status == 400
    assert b"9000000 bytes, of which this page reads 5" in answer.body


@pytest.mark.parametrize("part", ["", "?part=1"])
def test_a_page_offers_a_download_of_a_whole_value_and_else_says_why_not(part: str) -> None:
    cut, whole = seen(5, b"first", value_bytes=9_000_000), seen(6, b"all")
    browser = Browser(FakeDesk([cut, whole]))
    page = browser.text(f"{PATH}/0/5{part}")
    assert "9000000 bytes, of which this page reads 5" in page
    assert "Download the value" not in page
    assert "Download the value" in browser.text(f"{PATH}/0/6{part}")


@pytest.mark.parametrize("number", ["9" * 5000, str(2**63), "x", "-1", "%C2%B2"])
def test_a_path_without_the_number_of_a_record_is_refused_with_a_sentence(number: str) -> None:
    browser = Browser(FakeDesk([seen(5, b"v")]))
    for where in (f"{number}/5", f"0/{number}", f"{number}/5/value", f"0/{number}/value"):
        answer = browser.get(f"{PATH}/{where}")
        assert answer.status == 400
        assert b"This did not work" in answer.body


def test_a_cut_record_is_marked_in_downloads_and_pages() -> None:
    """Awkward records: keys and headers were cut without a word."""
    whole = seen(5, b"v", headers=(("h", b"1"),))
    cut = whole._replace(offset=6, key_bytes=9, value_bytes=8, are_headers_cut=True)
    browser = Browser(FakeDesk([whole, cut]))
    first, second = map(json.loads, browser.get(f"{PATH}?as=ndjson").body.splitlines())
    assert {*second} - {*first} == {"key_bytes", "value_bytes", "headers_cut"}
    assert (second["key_bytes"], second["value_bytes"], second["headers_cut"]) == (9, 8, True)
    assert "(cut)" in browser.text(f"{PATH}/0/6?part=1")
    assert "(cut)" not in browser.text(f"{PATH}/0/5?part=1")


def test_values_of_known_formats_are_decoded_into_rows() -> None:
    rows = {"note": "An array.", "columns": ["0"], "rows": [["<7>"]]}
    browser = Browser(FakeDesk([seen(5, b"\x93NUMPY\x01")]), decoded=rows)
    page = browser.text(f"{PATH}/0/5")
    assert "An array." in page
    assert "&lt;7&gt;" in page
    browser.decoded = {"error": "it is none"}
    assert "it is none" in browser.text(f"{PATH}/0/5")


def test_a_reference_leads_to_its_payload() -> None:
    reference = Reference.of(0, bytes(10), 7, 9, "image/tiff")
    handle = reference.handle()
    headers = (("smq-ref", b"1"),)
    browser = Browser(FakeDesk([seen(5, handle, headers=headers), seen(6, b"no", headers=headers)]))
    page = browser.text(f"{PATH}/0/5")
    assert "image/tiff" in page
    assert "a handle is JSON" in browser.text(f"{PATH}/0/6")
    store = MemoryStore()
    store.put(reference.key("clicks"), b"payload")
    link = re.search('href="(/filer/[^"]+)" download', page)
    assert link
    assert call(front(store), "GET", link[1]).body == b"payload"


def test_a_record_is_produced_as_the_form_says() -> None:
    browser = Browser(FakeDesk())
    said = browser.said(PATH, key="k", value="v", headers="a=1\nb=x=y", partition="2")
    assert "offset 41" in said
    browser.said(PATH, value="", null="1")
    assert browser.desk.done == [
        NewRecord("clicks", 2, b"k", b"v", (("a", b"1"), ("b", b"x=y"))),
        NewRecord("clicks", None, None, None, ()),
    ]
    assert browser.post(PATH, headers="no sign").status == 400


class Unread:
    """A client that has read nothing of its download yet."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self.begun, self.reads, self.ended = asyncio.Event(), asyncio.Event(), False
        self.task = asyncio.create_task(self._ask(app, path))

    async def _ask(self, app: ASGIApp, path: str) -> None:
        await app(scope_of("GET", path), self._receive, self._send)

    async def _receive(self) -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: Message) -> None:
        self.begun.set()
        await self.reads.wait()
        if message["type"] == "http.response.body":
            self.ended = not message["more_body"]


async def unread(browser: Browser, path: str, count: int) -> list[Unread]:
    """Clients that come one after another."""
    app, clients = browser.app(), list[Unread]()
    for _ in range(count):
        clients.append(Unread(app, path))
        await asyncio.wait_for(clients[-1].begun.wait(), 20)
    return clients


LONG = seen(5, b"v" * (SMALL_BYTES + 1))
SMALL = seen(5, b"v", headers=(("h", b"1"),))


@pytest.mark.parametrize("path", [f"{PATH}?as=ndjson", f"{PATH}/0/5/value"])
@pytest.mark.parametrize(("record", "whole"), [(LONG, DOWNLOADS_MAX), (SMALL, DOWNLOADS_MAX + 2)])
def test_a_newcomer_gets_the_place_of_the_oldest_long_download(
    path: str, record: ShownRecord, whole: int
) -> None:
    """Each kept 61 MiB for as long as its client liked, and one user had twelve."""
    browser = Browser(FakeDesk([record]))

    async def run() -> list[bool]:
        clients = await unread(browser, path, DOWNLOADS_MAX + 2)
        gone = DOWNLOADS_MAX + 2 - whole
        await asyncio.wait_for(asyncio.gather(*(each.task for each in clients[:gone])), 20)
        for each in clients[gone:]:
            each.reads.set()
        await asyncio.wait_for(asyncio.gather(*(each.task for each in clients)), 20)
        return [each.ended for each in clients]

    assert asyncio.run(run()) == [False] * (DOWNLOADS_MAX + 2 - whole) + [True] * whole


def test_many_small_headers_make_a_long_download() -> None:
    headers = tuple(("", None) for _ in range(100))
    browser = Browser(FakeDesk([seen(n, b"v", headers=headers) for n in range(100)]))

    async def run() -> bool:
        first, *others = await unread(browser, f"{PATH}?as=ndjson", DOWNLOADS_MAX + 1)
        await asyncio.wait_for(first.task, 20)
        for each in others:
            each.reads.set()
        await asyncio.wait_for(asyncio.gather(*(each.task for each in others)), 20)
        return all(each.ended for each in others)

    assert asyncio.run(run())


@pytest.mark.parametrize("path", [f"{PATH}?as=ndjson", f"{PATH}/0/5/value"])
def test_a_download_that_is_cancelled_keeps_no_records(path: str) -> None:
    """Not even until the garbage is collected."""

    async def run() -> None:
        loop, gone = asyncio.get_running_loop(), asyncio.Event()

        class Value(bytes):
            def __del__(self) -> None:  # Perhaps in the thread that has found the record.
                loop.call_soon_threadsafe(gone.set)

        desk = FakeDesk([seen(5, Value(SMALL_BYTES + 1))])
        (client,) = await unread(Browser(desk), path, 1)
        desk.records = []
        client.task.cancel()
        await asyncio.wait_for(client.task, 20)  # The gate ends it as one whose client has left.
        await asyncio.wait_for(gone.wait(), 20)

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()
