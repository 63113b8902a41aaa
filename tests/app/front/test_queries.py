"""POST /sql on a real broker: answers, refusals, and failures that it survives."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from anyio.to_thread import current_default_thread_limiter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from smq.app.front import queries
from smq.app.front.queries import AT_ONCE, QUERY_BYTES_MAX, Queries
from smq.app.front.query_line import QueryLine
from smq.front.rights import give_rights
from smq.model.config import Config
from smq.security.acls import Operation
from smq.security.principals import Peer, Principal
from smq.security.rights import Rights
from smq.sql.worker import REFUSED
from smq.testing.smq_broker import SmqBroker
from tests.app.http_client import Answer, ask
from tests.broker.one_topic import SETTINGS
from tests.front.users import may, rights_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("sql"), {**SETTINGS, "http.port": "0"}) as broker:
        with broker.connect() as client:
            client.create_topic("clicks", 1)
            with client.producer() as producer:
                for number in range(3):
                    producer.send("clicks", b'{"n": %d}' % number)
        yield broker


def ask_sql(broker: SmqBroker, body: bytes, kind: str = "application/sql") -> Answer:
    return ask(broker, "POST", "/sql", body=body, content_type=kind)


def test_a_query_is_answered_as_json(broker: SmqBroker) -> None:
    query = """
        SELECT (a.value->>'n')::INT AS n, b.value AS b
        FROM clicks AS a JOIN raw.clicks AS b USING ("offset") ORDER BY n
    """
    told = ask_sql(broker, query.encode())
    assert told.status == 200
    assert told.json["columns"] == ["n", "b"]
    assert [row[0] for row in told.json["rows"]] == [0, 1, 2]
    assert told.json["rows"][0][1] == {"base64": "eyJuIjogMH0="}
    assert told.json["truncated"] is False


@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        (b"SELECT * FROM nope", 400, "the topics are"),
        (b"DROP TABLE clicks", 400, "is not a query"),
        (b"SELECT * FROM read_text('/etc/hostname')", 400, "disabled"),
        (b"\xff", 400, "UTF-8"),
        (b"-" * (QUERY_BYTES_MAX + 1), 413, "at most"),
    ],
)
def test_a_failed_query_is_answered_with_status_and_sentence(
    broker: SmqBroker, query: bytes, status: int, sentence: str
) -> None:
    told = ask_sql(broker, query)
    assert told.status == status
    assert sentence in told.json["error"]


def test_rows_are_bounded(broker: SmqBroker) -> None:
    told = ask_sql(broker, b"SELECT * FROM range(1_000_000)")
    assert len(told.json["rows"]) <= queries.ROWS_MAX
    assert told.json["truncated"] is True
    assert ask(broker, "GET", "/health").status == 200


def test_a_query_comes_as_sql_or_json_and_never_as_a_form_of_another_page(
    broker: SmqBroker,
) -> None:
    """Door fault 1: a page of another site may send text/plain and forms without being asked."""
    told = ask_sql(broker, b'{"query": "SELECT 1 AS one"}', "application/json; charset=utf-8")
    assert told.json["rows"] == [[1]]
    for kind in ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert ask_sql(broker, b"SELECT 1", kind).status == 415
    for body in (b"SELECT 1", b"[]", b'{"query": 1}', b"[" * 60_000):
        assert ask_sql(broker, body, "application/json").status == 400


def request_from(
    host: str, body: bytes, user: str | None = None, *, gone: asyncio.Event | None = None
) -> Request:
    """A request of a client that disconnects when `gone` is set, if ever."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, object]:
        if messages:
            return messages.pop()
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    headers = [(b"content-type", b"application/sql")]
    scope: dict[str, object] = {
        "type": "http",
        "method": "POST",
        "path": "/sql",
        "headers": headers,
        "client": (host, 1),
    }
    give_rights(scope, None if user is None else Rights(None, Peer(Principal("User", user), host)))
    return Request(scope, receive)


Worker = Callable[[str], Queries]


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """Queries whose worker is a program of the test's."""

    def made(program: str) -> Queries:
        (tmp_path / "made_worker.py").write_text(program)
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}")
        return Queries(tmp_path, Config(data_dir=tmp_path), "made_worker")

    return made


SLEEPS = "import time\ntime.sleep(1000)\n"


@pytest.fixture
def sleeper(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Queries:
    """Its worker never answers."""
    monkeypatch.setattr(queries, "SECONDS", 0.2)
    monkeypatch.setattr(queries, "START_SECONDS", 0.2)
    return worker(SLEEPS)


def test_a_query_without_end_is_killed_and_others_wait_or_are_refused(
    sleeper: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleeper, "_line", QueryLine(AT_ONCE, 1))

    async def all_at_once() -> list[int]:
        asked = (sleeper.answer(request_from("127.0.0.1", b"SELECT 1")) for _ in range(AT_ONCE + 2))
        return sorted([answer.status_code for answer in await asyncio.gather(*asked)])

    assert asyncio.run(all_at_once()) == [503, *[504] * (AT_ONCE + 1)]


def test_a_user_who_queries_without_a_pause_leaves_others_their_turn(sleeper: Queries) -> None:
    """Two such had another's every query refused."""

    async def run() -> None:
        async def again_and_again(user: str) -> None:
            while True:
                await sleeper.answer(request_from("10.0.0.1", b"SELECT 1", user))

        others = [asyncio.create_task(again_and_again(f"m{n}")) for n in range(AT_ONCE + 1)]
        await asyncio.sleep(0)
        for _ in range(2):
            asked = sleeper.answer(request_from("10.0.0.1", b"SELECT 1", "bob"))
            assert (await asyncio.wait_for(asked, 60)).status_code == 504
        for each in others:
            each.cancel()
        await asyncio.wait(others)

    asyncio.run(run())


@pytest.mark.parametrize("leaves", [False, True])
def test_a_query_whose_turn_does_not_come_leaves_the_line(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    monkeypatch.setattr(queries, "WAIT_S", 20.0 if leaves else 0.01)
    asked = worker(SLEEPS)

    async def run() -> None:
        running = [
            asyncio.create_task(asked.answer(request_from("10.0.0.1", b"SELECT 1", user)))
            for user in "ab"
        ]
        await asyncio.sleep(0)
        gone = asyncio.Event()
        late = asyncio.create_task(
            asked.answer(request_from("10.0.0.1", b"SELECT 1", "bob", gone=gone))
        )
        await asyncio.sleep(0)
        if leaves:
            gone.set()
        async with asyncio.timeout(60):
            await asyncio.wait({late})
        if leaves:
            assert isinstance(late.exception(), ClientDisconnect)
        else:
            assert late.result().status_code == 503
        asked._line.invariants()
        assert not asked._line._waiting
        for each in running:
            each.cancel()
        await asyncio.wait(running)
        assert asked._line._running == 0

    asyncio.run(run())


def test_a_user_has_one_query_at_a_time(sleeper: Queries) -> None:
    async def all_at_once() -> list[Response]:
        asked = [request_from("10.0.0.1", b"SELECT 1", user) for user in ("bob", "bob", "alice")]
        return list(await asyncio.gather(*map(sleeper.answer, asked)))

    ran, refused, others = asyncio.run(all_at_once())
    assert (ran.status_code, others.status_code) == (504, 504)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    again = asyncio.run(sleeper.answer(request_from("10.0.0.1", b"SELECT 1", "bob")))
    assert again.status_code == 504


def test_a_user_asks_again_when_his_answer_is_sent(worker: Worker) -> None:
    """Who reads no answer would have the front hold one after the other."""
    asked, sent = worker("print('[1]', end='')"), list[Mapping[str, object]]()

    async def one_after_the_other() -> list[int]:
        first = await asked.answer(request_from("10.0.0.1", b"SELECT 1", "bob"))
        early = await asked.answer(request_from("10.0.0.1", b"SELECT 1", "bob"))
        await send_to(first, sent)
        late = await asked.answer(request_from("10.0.0.1", b"SELECT 1", "bob"))
        return [each.status_code for each in (first, early, late)]

    assert asyncio.run(one_after_the_other()) == [200, 503, 200]
    assert b"".join(each.get("body", b"") for each in sent) == b"[1]"  # type: ignore[misc]


async def send_to(answer: Response, sent: list[Mapping[str, object]]) -> None:
    async def send(message: Mapping[str, object]) -> None:
        sent.append(message)

    request = request_from("10.0.0.1", b"")
    await answer(request.scope, request.receive, send)


async def until(condition: Callable[[], bool]) -> None:
    end_s = asyncio.get_running_loop().time() + 60
    while not condition():
        assert asyncio.get_running_loop().time() < end_s
        await asyncio.sleep(0.01)


def test_a_query_ends_when_its_client_disconnects(worker: Worker, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    asked = worker(f"import os\nopen({str(note)!r}, 'w').write(str(os.getpid()))\n{SLEEPS}")

    async def disconnected() -> None:
        gone = asyncio.Event()
        answer = asyncio.create_task(
            asked.answer(request_from("10.0.0.1", b"SELECT 1", "bob", gone=gone))
        )
        await until(lambda: note.exists() and note.read_text() != "")
        gone.set()
        await answer

    with pytest.raises(ClientDisconnect):
        asyncio.run(disconnected())
    assert not Path(f"/proc/{note.read_text()}").exists()


@pytest.mark.parametrize(
    ("program", "status"),
    [
        (f"import sys\nsys.exit(print('{{}}', end='') or {REFUSED})", 400),
        ("import sys\nsys.exit(1)", 500),
        ("while True: print('x' * 1000000)", 500),
    ],
    ids=["refused", "died", "endless"],
)
def test_the_status_is_the_workers_exit_code_and_its_answer_is_bounded(
    worker: Worker, program: str, status: int
) -> None:
    asked = worker(program).answer(request_from("127.0.0.1", b"SELECT 1"))
    assert asyncio.run(asked).status_code == status


def test_front_and_worker_mean_the_same_exit_code() -> None:
    assert queries.REFUSED == REFUSED


def test_other_hosts_are_refused_and_a_missing_library_is_said(
    sleeper: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asyncio.run(sleeper.answer(request_from("10.0.0.1", b"SELECT 1"))).status_code == 403
    monkeypatch.setattr(queries, "find_spec", lambda _name: None)
    assert asyncio.run(sleeper.answer(request_from("127.0.0.1", b"SELECT 1"))).status_code == 501


def test_a_query_finds_its_topics_while_others_hold_the_common_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_names", lambda _: ["clicks", "wages"])
    logins = rights_for(may("alice", Operation.READ, "clicks")).logins
    assert logins is not None
    rights = logins.rights_of(Peer(Principal("User", "alice"), "127.0.0.1"))

    async def run() -> list[str] | None:
        common = current_default_thread_limiter()
        for _ in range(int(common.total_tokens)):
            await common.acquire_on_behalf_of(object())
        found = Queries(tmp_path, Config(data_dir=tmp_path))._topics(rights)
        return await asyncio.wait_for(found, 20)

    assert asyncio.run(run()) == ["clicks"]
