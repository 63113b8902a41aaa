"""Files of the filer: folders, their pages, one file, and references to a payload."""

from pathlib import Path

import pytest

from smq.filer.local import LocalStore
from smq.front.console.pages.files import ROWS_A_PAGE, SegmentFile, crumbs, listing, segment_of
from tests.front.console.fake_desk import HOSTILE, Browser

SEGMENT = f"topics/kafka/clicks/partition=3/{5:020}-{25:020}-abc.parquet"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path)
    store.put(SEGMENT, b"PAR1")
    store.put("payloads/kafka/clicks/known", bytes(2048))
    store.put("top.txt", b"x")
    return store


def test_a_folder_has_its_folders_and_files_in_order(store: LocalStore) -> None:
    assert [each.name for each in listing(store, "", "").rows] == ["payloads", "top.txt", "topics"]
    (file,) = listing(store, "payloads/kafka/clicks/", "").rows
    assert file.facts is not None
    assert file.facts.length == 2048
    assert listing(store, "nothing/", "").rows == []


def test_a_large_folder_is_shown_a_page_at_a_time(store: LocalStore) -> None:
    names = [f"many/{n:04}" for n in range(ROWS_A_PAGE)]
    names += [f"many/folder-{n:04}/file" for n in range(ROWS_A_PAGE + 5)]
    for name in names:
        store.put(name, b"")
    shown, after, pages = [], "", 0
    while pages == 0 or after:
        found = listing(store, "many/", after)
        shown += [each.name for each in found.rows]
        after, pages = found.after, pages + 1
    assert shown == sorted(dict.fromkeys(name.split("/")[1] for name in names))
    assert pages == 3


def test_a_page_links_folders_files_and_what_is_above(store: LocalStore) -> None:
    page = Browser(store=store).text("/files?in=topics/kafka/clicks/")
    assert 'href="/files?in=topics/kafka/"' in page
    assert 'href="/files?in=topics/kafka/clicks/partition%3D3/"' in page
    page = Browser(store=store).text("/files?in=topics/kafka/clicks/partition%3D3/")
    assert f'href="/filer/{SEGMENT.replace("=", "%3D")}"' in page


def test_an_empty_filer_says_what_will_be_there() -> None:
    assert "Nothing is here yet" in Browser().text("/files")


def test_a_segment_leads_to_its_records(store: LocalStore) -> None:
    page = Browser(store=store).text(f"/files/one?key={SEGMENT}")
    assert "/topics/clicks/messages?partition=3&amp;start=5&amp;until=25" in page
    assert segment_of(SEGMENT) == SegmentFile("clicks", 3, 5, 25)
    assert segment_of("topics/kafka/clicks/other") is None


def test_a_payload_says_who_refers_to_it(store: LocalStore) -> None:
    page = Browser(store=store).text("/files/one?key=payloads/kafka/clicks/known")
    assert "/topics/clicks/messages?partition=1&amp;start=100&amp;until=200" in page
    store.put("payloads/kafka/clicks/unknown", b"x")
    page = Browser(store=store).text("/files/one?key=payloads/kafka/clicks/unknown")
    assert "No sealed segment refers to it" in page


def test_a_file_that_is_not_there_is_said_to_be_missing(store: LocalStore) -> None:
    assert Browser(store=store).get("/files/one?key=topics/none").status == 404
    assert Browser(store=store).get(f"/files?in={'x' * 2000}").status == 400
    assert Browser(store=store).get("/files/one?key=../../etc/passwd").status in {400, 404, 502}


@pytest.mark.parametrize("key", ["", ".x", "a/../b", "a%0Ab", "a//b"])
def test_a_key_that_no_store_takes_is_the_clients_fault(store: LocalStore, key: str) -> None:
    answer = Browser(store=store).get(f"/files/one?key={key}")
    assert answer.status == 400
    assert b"a key has" in answer.body or b"between slashes" in answer.body


def test_names_are_escaped(store: LocalStore) -> None:
    store.put("odd/<script>", b"x")
    assert "<script>alert" not in Browser(store=store).text("/files?in=odd/")
    assert "&lt;script&gt;" in Browser(store=store).text("/files?in=odd/")
    assert list(crumbs("a/b/")) == [("a", "a/"), ("b", "a/b/")]
    assert HOSTILE not in Browser(store=store).text("/files?in=" + "%3Cscript%3E/")
