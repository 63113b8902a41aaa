"""Records: listed, searched, looked at, downloaded, produced."""

import asyncio
import gc
import json
import re
import threading
from typing import Any, ClassVar

import pytest
from starlette.types import ASGIApp, Message

from smq.front import downloads
from smq.front.console.desk import NewRecord, PassedOver
from smq.front.console.pages.messages import SMALL_BYTES, wanted_of
from smq.front.console.text import SHOWN_BYTES_MAX
from smq.front.downloads import LINE_MAX, PLACES
from smq.front.turns import PeerStanding
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
        self.status, self.headers = 0, dict[bytes, bytes]()
        self._gone = asyncio.Event()
        self.task = asyncio.create_task(self._ask(app, path))

    async def _ask(self, app: ASGIApp, path: str) -> None:
        state = PeerStanding(cut=self._gone.set).in_state()
        await app({**scope_of("GET", path), "state": state}, self._receive, self._send)

    @property
    def is_cut(self) -> bool:
        return self._gone.is_set()

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        self.begun.set()
        await self.reads.wait()
        if message["type"] == "http.response.body":
            self.ended = not message["more_body"]


async def unread(app: ASGIApp, path: str, count: int) -> list[Unread]:
    """Clients that come one after another."""
    clients = list[Unread]()
    for _ in range(count):
        clients.append(Unread(app, path))
        await asyncio.wait_for(clients[-1].begun.wait(), 20)
    return clients


LONG = seen(5, b"v" * (SMALL_BYTES + 1))
SMALL = seen(5, b"v", headers=(("h", b"1"),))


async def until_one_begins(clients: list[Unread]) -> None:
    begun = [asyncio.create_task(each.begun.wait()) for each in clients]
    done, left = await asyncio.wait(begun, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    for each in left:
        each.cancel()
    assert done


@pytest.mark.parametrize("path", [f"{PATH}?as=ndjson", f"{PATH}/0/5/value"])
def test_long_downloads_wait_for_places_and_are_refused_before_the_head_if_many_wait(
    path: str,
) -> None:
    """Each ended the oldest, so that of six clients who asked again none got a whole file."""
    browser = Browser(FakeDesk([LONG]))

    async def run() -> None:
        app = browser.app()
        clients = await unread(app, path, PLACES)
        waiting = [Unread(app, path) for _ in range(LINE_MAX + 1)]
        await until_one_begins(waiting)
        for each in [*clients, *waiting]:
            each.reads.set()
        await asyncio.wait_for(asyncio.gather(*(each.task for each in [*clients, *waiting])), 20)
        assert all(each.ended and each.status == 200 for each in clients)
        assert sorted(each.status for each in waiting) == [200] * LINE_MAX + [503]
        assert all(each.ended for each in waiting)
        assert all((b"retry-after" in each.headers) == (each.status == 503) for each in waiting)

    asyncio.run(run())


@pytest.mark.parametrize("path", [f"{PATH}?as=ndjson", f"{PATH}/0/5/value"])
def test_short_downloads_need_no_place(path: str) -> None:
    async def run() -> None:
        clients = await unread(Browser(FakeDesk([SMALL])).app(), path, PLACES + LINE_MAX + 1)
        for each in clients:
            each.reads.set()
        await asyncio.wait_for(asyncio.gather(*(each.task for each in clients)), 20)
        assert all(each.ended for each in clients)

    asyncio.run(run())


@pytest.mark.parametrize("path", [f"{PATH}?as=ndjson", f"{PATH}/0/5/value"])
def test_a_slow_long_download_is_cut_for_another(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four users who hardly read kept the places, and a fifth got heads without bodies."""
    monkeypatch.setattr(downloads, "GRACE_S", 0.0)

    async def run() -> None:
        app = Browser(FakeDesk([LONG])).app()
        first, *others = await unread(app, path, PLACES + 1)
        await asyncio.wait_for(first.task, 20)
        assert (first.is_cut, first.ended) == (True, False)
        for each in others:
            each.reads.set()
        await asyncio.wait_for(asyncio.gather(*(each.task for each in others)), 20)
        assert all(each.ended and not each.is_cut for each in others)

    asyncio.run(run())


def test_many_small_headers_make_a_long_download() -> None:
    headers = tuple(("", None) for _ in range(100))
    app = Browser(FakeDesk([seen(n, b"v", headers=headers) for n in range(100)])).app()

    async def run() -> None:
        clients = await unread(app, f"{PATH}?as=ndjson", PLACES)
        waiting = [Unread(app, f"{PATH}?as=ndjson") for _ in range(LINE_MAX + 1)]
        await until_one_begins(waiting)
        for each in [*clients, *waiting]:
            each.reads.set()
        await asyncio.wait_for(asyncio.gather(*(each.task for each in [*clients, *waiting])), 20)
        assert [each.status for each in waiting].count(503) == 1

    asyncio.run(run())


@pytest.mark.parametrize("path", [f"{PATH}?as=ndjson", f"{PATH}/0/5/value"])
def test_a_download_that_is_cancelled_keeps_no_records(path: str) -> None:
    """Not even until the garbage is collected."""

    async def run() -> None:
        loop, gone = asyncio.get_running_loop(), asyncio.Event()

        class Value(bytes):
            def __del__(self) -> None:  # Perhaps in the thread that has found the record.
                loop.call_soon_threadsafe(gone.set)

        desk = FakeDesk([seen(5, Value(SMALL_BYTES + 1))])
        (client,) = await unread(Browser(desk).app(), path, 1)
        desk.records = []
        client.task.cancel()
        await asyncio.wait_for(client.task, 20)  # The gate ends it as one whose client has left.
        await asyncio.wait_for(gone.wait(), 20)

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()
