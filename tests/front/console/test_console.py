"""Shared by all pages: forms, and the display of failures."""

import asyncio
import gc
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from urllib.parse import quote, quote_plus

import pytest
from starlette.requests import Request
from starlette.types import Message, Scope

from smq.front.console import console as module
from smq.front.console.console import (
    AT_ONCE,
    FORM_BYTES_MAX,
    LONG_FORM_BYTES_MAX,
    OF_USER_MAX,
    PIECE_BYTES,
    SMALL_FORM_BYTES,
    lines_of,
)
from smq.front.logins import FORM_BYTES_MAX as LOGIN_BYTES_MAX
from smq.front.metrics.facts import Facts
from smq.front.rights import HttpRights, give_rights
from smq.security.principals import Peer, Principal
from tests.front.console.fake_desk import FACTS, HOSTILE, Browser
from tests.front.users import rights_for


def test_a_failure_is_a_page_with_its_sentence_and_status() -> None:
    answer = Browser().get("/topics/nope")
    assert answer.status == 404
    assert b"no nope" in answer.body
    bad = Browser().get("/topics/clicks/messages?limit=x")
    assert bad.status == 400
    assert b"whole number" in bad.body


def test_a_failed_action_is_a_sentence() -> None:
    answer = Browser().post("/topics/clicks/partitions", added=HOSTILE)
    assert answer.status == 400
    assert b"<script" not in answer.body
    assert b"&lt;script&gt;" in answer.body


def test_a_form_is_bounded() -> None:
    browser = Browser()
    answer = browser.post("/topics/clicks/messages", value="x" * LONG_FORM_BYTES_MAX)
    assert answer.status == 400
    many = {f"field{number}": "" for number in range(200)}
    assert browser.post("/topics/clicks/messages", **many).status == 400
    assert browser.desk.done == []


@pytest.mark.parametrize(
    "path",
    [
        *("/topics", "/topics/clicks/settings", "/topics/clicks/partitions"),
        *("/topics/clicks/delete", "/groups/delete", "/settings"),
    ],
)
def test_only_a_record_and_a_plan_may_be_long(path: str) -> None:
    """Each letter of a name of two megabytes was shown as six, by who had no right at all."""
    long = "\x7f" * FORM_BYTES_MAX
    browser = Browser()
    answer = browser.post(path, name=long, group=long, value=long, confirm="x")
    assert (answer.status, answer.body.count(b"a form")) == (400, 1)
    assert len(answer.body) < 1000
    assert browser.desk.done == []


@pytest.mark.parametrize("bytes_before", range(6))
@pytest.mark.parametrize("text", ["\u20ac+%", "%", "&=+ ", "\x7f"])
def test_a_long_form_has_the_same_text_wherever_it_is_cut(text: str, bytes_before: int) -> None:
    browser, value = Browser(), "x" * bytes_before + text * (PIECE_BYTES // 2)
    browser.said("/topics/clicks/messages", value=value)
    assert browser.desk.done[0].value == value.encode()


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"", b""),
        (b"&&value=1&", b"1"),
        (b"value", b""),
        (b"value=1&value=2", b"2"),
        (b"v%61lue=a=b", b"a=b"),
        (b"value=%", b"%"),
        (b"value=%4", b"%4"),
        (b"value=%zz+%41", b"%zz A"),
        (b"value=%ff\xc3\xa4", "\ufffd\u00e4".encode()),
    ],
)
def test_a_form_is_parsed_as_browsers_write_it(body: bytes, value: bytes) -> None:
    browser = Browser()
    assert browser.send_bytes("/topics/clicks/messages", body).status == 200
    assert browser.desk.done[0].value == value


def test_a_form_that_is_no_text_is_refused() -> None:
    assert Browser().send_bytes("/topics/clicks/messages", b"value=\xff").status == 400


def test_lines_are_counted_before_they_are_cut() -> None:
    assert lines_of("a\r\nb\n", 3, "a plan") == ["a", "b", ""]
    with pytest.raises(ValueError, match="a plan has at most 2 lines"):
        lines_of("\n" * 1_000_000, 2, "a plan")


class Threads:
    """Work that lasts until the end; who is at work."""

    def __init__(self) -> None:
        self.at_work, self.end = list[str](), threading.Event()
        self._begun = SimpleQueue[str]()

    def work(self, name: str) -> None:
        self.at_work.append(name)
        self._begun.put(name)
        assert self.end.wait(20)

    async def begins(self) -> str:
        """Who begins to work next."""
        return await asyncio.to_thread(self._begun.get, timeout=20)


def asked_by(rights: HttpRights, user: str) -> Request:
    """A request of a user."""
    assert rights.logins is not None
    scope = {"type": "http"}
    give_rights(scope, rights.logins.rights_of(Peer(Principal("User", user), "", "HTTP")))
    return Request(scope)


@pytest.mark.parametrize("how", ["made", "look", "in_turns"])
def test_users_take_turns_at_the_thread_in_which_pages_are_made(how: str) -> None:
    """Others waited for twelve long lists of one user before the page of theirs was made."""
    threads, rights, done = Threads(), rights_for(), list[str]()

    def facts() -> Facts:
        threads.work("")
        return FACTS

    def piece(_: int) -> bytes:
        threads.work("")
        return b"."

    console = replace(Browser(rights=rights).console(), facts=facts)

    async def ask(user: str) -> None:
        request = asked_by(rights, user)
        if how == "look":
            await console.look(request)
        elif how == "made":
            await console.made(request, threads.work, "")
        else:
            assert [each async for each in console.in_turns(request, map(piece, [1]))] == [b"."]
        done.append(user)

    async def run() -> None:
        tasks = [asyncio.create_task(ask("alice"))]
        await threads.begins()
        tasks += [asyncio.create_task(ask("alice")) for _ in range(11)]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(ask("bob")))
        await asyncio.sleep(0)
        threads.end.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 20)

    asyncio.run(run())
    assert done.index("bob") <= 2
    gc.collect()
    assert len(console.looking) == 0, "nothing is kept of who has left"


def barely_quoted(text: str) -> str:
    """What has no meaning in a form stands as it is."""
    return re.sub("[%&=+]", lambda found: f"%{ord(found[0]):02X}", text)


def form_of_stranger(body: bytes) -> dict[str, str]:
    """The fields of a form that is parsed without a thread."""
    scope: Scope = {"type": "http", "headers": []}
    give_rights(scope, None)

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def run() -> dict[str, str]:
        threads = threading.active_count()
        fields = await Browser().console().form(Request(scope, receive), LOGIN_BYTES_MAX)
        assert threading.active_count() == threads
        return fields

    return asyncio.run(run())


@pytest.mark.parametrize(
    "text",
    ["\u20ac+%", "%41%", "&=+ ", "\x7f", "\\", "\\x41", "\\N{DIGIT}", "\r\n\0", "\U0001f600"],
)
@pytest.mark.parametrize("encode", [quote_plus, quote, barely_quoted])
def test_strangers_long_forms_are_parsed_at_once(text: str, encode: Callable[[str], str]) -> None:
    """One was parsed at a time: of four hundred strangers the form of a login waited for all."""
    wanted = {"jwt": text * SMALL_FORM_BYTES, text: "1"}
    body = "&".join(f"{encode(name)}={encode(value)}" for name, value in wanted.items()).encode()
    assert SMALL_FORM_BYTES < len(body) <= LOGIN_BYTES_MAX
    assert form_of_stranger(body) == wanted
    assert form_of_stranger(body) == module._fields(body)


@pytest.mark.parametrize("escape", ["%", "%4", "%zz", "%4_", "%+1", "%\\x41", "%%41", "%\u20ac"])
@pytest.mark.parametrize("end", ["", "&user=bob"])
def test_a_long_form_has_only_escapes_that_browsers_write(escape: str, end: str) -> None:
    body = f"jwt={'x' * SMALL_FORM_BYTES}{escape}{end}".encode()
    with pytest.raises(ValueError, match="each % begins an escape"):
        form_of_stranger(body)
    assert form_of_stranger(f"jwt={escape}{end}".encode())["jwt"]


def test_one_user_leaves_threads_to_others() -> None:
    """12 searches of one user had all others wait for theirs."""
    threads, rights = Threads(), rights_for()
    console = Browser(rights=rights).console()

    async def run() -> None:
        tasks = [
            asyncio.create_task(console.ask(asked_by(rights, user), threads.work, user))
            for user in ["alice"] * 12 + ["bob"]
        ]
        begun = [await threads.begins() for _ in range(OF_USER_MAX + 1)]
        assert sorted(begun) == ["alice", "alice", "bob"]
        threads.end.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 20)
        assert threads.at_work.count("alice") == 12

    asyncio.run(run())
    gc.collect()
    assert len(console.asking) == 0, "nothing is kept of who has left"


def test_without_users_all_threads_are_everybodys() -> None:
    threads, console = Threads(), Browser().console()

    async def run() -> None:
        scope = {"type": "http"}
        give_rights(scope, None)
        asked = [console.ask(Request(scope), threads.work, "") for _ in range(AT_ONCE)]
        tasks = [asyncio.create_task(each) for each in asked]
        for _ in tasks:
            await threads.begins()
        threads.end.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 20)

    asyncio.run(run())
