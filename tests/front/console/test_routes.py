"""Which routes there are; that each page is a whole document, bounded, and made in a thread."""

import threading
from dataclasses import dataclass, replace
from typing import Any

import pytest

from smq.filer.local import LocalStore
from smq.front.console import console
from smq.front.console.desk import (
    HEADERS_MAX,
    PREVIEW_BYTES,
    BrokerSetting,
    Denial,
    GroupRow,
    Move,
    Ruling,
    ShownGroup,
    ShownMember,
    ShownSetting,
    ShownUser,
)
from smq.front.console.pages.groups import MOVES_MAX
from smq.front.console.templates import render
from smq.front.metrics.facts import GroupOffset, PartitionFacts
from smq.security.acls import AclBinding, Operation, ResourceType
from smq.store.config_changes import ConfigChange
from tests.front.console.fake_desk import FACTS, Browser, FakeDesk, seen
from tests.front.users import SUPER, may, rights_for

PAGE_BYTES_MAX = 7_000_000
NAME = "\x7f" * 32_767  # The longest of the wire; a page spells each letter with six.
TOPIC = "t" * 249
DEEP = b"[" * 900 + b"1," * (127 * 1024) + b"1" + b"]" * 900
PATHS_OF_RECORDS = [
    "/topics/clicks/messages?limit=500",
    "/topics/clicks/messages/0/0",
    "/topics/clicks/messages/0/0?part=1",
    "/topics/clicks/messages/0/1",
    "/topics/clicks/messages/0/2",
]
PATHS = [
    "/",
    "/?part=cards",
    "/?part=facts",
    "/topics",
    "/topics/clicks",
    "/groups",
    "/groups/one?group=readers",
    "/files",
    "/settings",
    "/users",
    "/rules",
    "/rules?name=clicks",
    "/sessions",
    "/denied",
    *PATHS_OF_RECORDS,
]


@dataclass
class LargeDesk(FakeDesk):
    """Whatever clients choose is as long and as much as they can make it."""

    def __post_init__(self) -> None:
        long = b"\x7f" * PREVIEW_BYTES
        self.records = [
            seen(0, DEEP, key=b"\x7f" * (8 << 20), key_bytes=8 << 20),
            seen(1, b"Obj\x01", headers=((long.decode(), long),) * HEADERS_MAX),
            seen(2, b"\x7f" * (8 << 20), key=DEEP, key_bytes=len(DEEP)),
            *(seen(n, long, key=long, value_bytes=9999) for n in range(3, 500)),
        ]
        self.of_broker = [
            BrokerSetting(f"setting-{n}", NAME, "default", False, False) for n in range(250)
        ]
        change = ConfigChange(0, "topic", "clicks", "x", NAME, NAME, NAME, NAME)
        self.changed = [change] * 1000

    def settings(self, topic: str) -> list[ShownSetting]:
        return [ShownSetting(f"setting-{n}", NAME, True, False) for n in range(50)]

    def groups(self) -> list[GroupRow]:
        return [GroupRow(f"{n}{NAME[10:]}", "Empty") for n in range(1000)]

    def group(self, group: str) -> ShownGroup:
        partitions = (("clicks", 0), ("clicks", 1))
        members = [ShownMember(NAME, NAME, NAME, NAME, ()) for _ in range(999)]
        members.insert(0, ShownMember(NAME, NAME, NAME, NAME, partitions))
        return ShownGroup(group, "Stable", NAME, tuple(members))

    def moves(self, group: str, topic: str, place: str) -> list[Move]:
        return [Move(TOPIC, n, 15, 5, 25) for n in range(MOVES_MAX)]

    def users(self) -> list[ShownUser]:
        return [ShownUser(NAME, ("SCRAM-SHA-256, 4096 iterations",))] * 1000

    def rules(self, kind: ResourceType, name: str) -> list[AclBinding]:
        return [may(NAME, Operation.READ, NAME)] * 1000

    def rulings(
        self, operation: Operation, kind: ResourceType, name: str, host: str
    ) -> list[Ruling]:
        return [Ruling(NAME, True, "a rule allows it", NAME)] * 500

    def denials(self, count: int) -> list[Denial]:
        return [Denial("now", "User:bob", NAME, "HTTP", "Fetch", "READ", "GROUP", NAME, "7")] * 500


@pytest.fixture(scope="module")
def browser() -> Browser:
    """A super user's browser before much of everything."""
    topics = [f"{n:05}{TOPIC[5:]}" for n in range(3000)]
    facts = replace(
        FACTS,
        partitions=[
            *(PartitionFacts("clicks", n, 1, 5, 25, 1024, 4096, 2) for n in range(3000)),
            *(PartitionFacts(topic, 0, 1, 5, 25, 1024, 4096, 2) for topic in topics),
        ],
        offsets=[
            *(GroupOffset("readers", topic, 0, 15, 10, 3.0) for topic in ["clicks", *topics]),
            *(GroupOffset(f"{n}{NAME[10:]}", "clicks", 0, 15, 10, 3.0) for n in range(1000)),
        ],
    )
    browser = Browser(LargeDesk(), facts, rights=rights_for())
    browser.decoded = {"error": NAME, "note": NAME}
    browser.log_in(SUPER)
    return browser


@pytest.mark.parametrize("path", PATHS)
def test_no_page_grows_beyond_its_bound(browser: Browser, path: str) -> None:
    """A record of 64 KiB became 52 MB, a client id of 32 kB 39 MB; both took ten seconds."""
    answer = browser.get(path)
    assert answer.status == 200, answer.body[:1000]
    assert len(answer.body) < PAGE_BYTES_MAX


def test_a_preview_has_each_of_the_most_moves_and_no_more(browser: Browser) -> None:
    body = browser.post("/groups/reset?group=readers", browser.token, place="newest").body
    assert body.count(b"<tr>") == 1 + MOVES_MAX
    assert len(body) < 3 * MOVES_MAX * len(TOPIC)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """A super user's browser before a little of everything."""
    store = LocalStore(tmp_path_factory.mktemp("filer"))
    store.put("a", b"content")
    desk = FakeDesk([seen(n, b"{}") for n in range(3)])
    browser = Browser(desk, store=store, rights=rights_for())
    browser.log_in(SUPER)
    return browser


@pytest.mark.parametrize("path", [*PATHS, "/files/one?key=a", "preview"])
def test_pages_are_made_in_threads(
    small: Browser, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the loop answers others."""
    threads = set[int]()

    def noted(*values: Any) -> Any:
        threads.add(threading.get_ident())
        return render(*values)

    token = small.token
    monkeypatch.setattr(console, "render", noted)
    if path == "preview":
        answer = small.post("/groups/reset?group=readers", token, place="newest")
    else:
        answer = small.get(path)
    assert answer.status == 200
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/topics",
        "/topics/clicks",
        "/topics/clicks/messages",
        "/topics/clicks/messages/0/5",
        "/groups",
        "/groups/one?group=readers",
        "/files",
        "/settings",
    ],
)
def test_each_page_is_whole_without_scripts(path: str) -> None:
    page = Browser(FakeDesk([seen(5, b"{}")])).text(path)
    assert page.startswith("<!doctype html>")
    assert page.count("<h1>") == 1
    assert page.rstrip().endswith("</html>")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/topics", 200),
        ("/topics/clicks", 200),
        ("/groups", 200),
        ("/groups/one?group=readers", 200),
        ("/files", 200),
        ("/settings", 200),
        ("/topics/clicks/messages", 403),
        ("/topics/clicks/messages?text=pin", 403),
        ("/topics/clicks/messages/0/5", 403),
        ("/topics/clicks/messages/0/5/value", 403),
        ("/files/one?key=a", 403),
        ("/console/rates", 403),
        ("/console/static/console.js", 403),
    ],
)
def test_a_link_of_another_site_opens_plain_pages_only(path: str, status: int) -> None:
    """Door fault 1: how long a search takes tells what it finds."""
    desk = FakeDesk([seen(5, b"{}")])
    headers = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert Browser(desk).get(path, sec_fetch_site="cross-site", **headers).status == status
    assert Browser(desk).get(path, sec_fetch_site="same-origin", **headers).status != 403


def test_actions_are_no_gets() -> None:
    assert Browser().get("/groups/reset").status == 405
    assert Browser().get("/topics/clicks/delete").status == 405
