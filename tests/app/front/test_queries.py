"""POST /sql on a real broker: answers, refusals, and failures that it survives."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request

from smq.app.front import queries
from smq.app.front.queries import AT_ONCE, QUERY_BYTES_MAX, Queries
from smq.front.rights import give_rights
from smq.model.config import Config
from smq.testing.smq_broker import SmqBroker
from tests.app.http_client import Answer, ask
from tests.broker.one_topic import SETTINGS

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


def request_from(host: str, body: bytes) -> Request:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", b"application/sql")]
    scope: dict[str, object] = {
        "type": "http",
        "method": "POST",
        "path": "/sql",
        "headers": headers,
        "client": (host, 1),
    }
    give_rights(scope, None)
    return Request(scope, receive)


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queries:
    """Its worker never answers."""
    (tmp_path / "sleeper_worker.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}")
    monkeypatch.setattr(queries, "SECONDS", 0.2)
    monkeypatch.setattr(queries, "START_SECONDS", 0.2)
    return Queries(tmp_path, Config(data_dir=tmp_path), "sleeper_worker")


def test_a_query_without_end_is_killed_and_others_are_refused_meanwhile(sleeper: Queries) -> None:
    async def all_at_once() -> list[int]:
        asked = (sleeper.answer(request_from("127.0.0.1", b"SELECT 1")) for _ in range(AT_ONCE + 1))
        return sorted([answer.status_code for answer in await asyncio.gather(*asked)])

    assert asyncio.run(all_at_once()) == [503, *[504] * AT_ONCE]


def test_other_hosts_are_refused_and_a_missing_library_is_said(
    sleeper: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asyncio.run(sleeper.answer(request_from("10.0.0.1", b"SELECT 1"))).status_code == 403
    monkeypatch.setattr(queries, "find_spec", lambda _name: None)
    assert asyncio.run(sleeper.answer(request_from("127.0.0.1", b"SELECT 1"))).status_code == 501
