"""Routes and failures; health."""

import asyncio
from random import Random
from threading import Event

import pytest

from smq.filer.store import Facts
from smq.front.application import STATUSES, application, count_once, pause_s
from smq.front.space import NO_QUOTA, Space
from smq.model import errors
from smq.testing.faulty_store import Flaky
from smq.testing.memory_store import MemoryStore
from tests.front.asgi import Call, at_once, broker, call, front


def test_health_is_200_when_all_serve_and_503_when_not() -> None:
    assert call(front(MemoryStore()), "GET", "/health").json == {"ready": True}
    assert call(front(MemoryStore(), ready=False), "GET", "/health").status == 503


def test_a_front_lives_while_its_broker_does_not_serve() -> None:
    down = front(MemoryStore(), ready=False)
    assert call(down, "GET", "/health/live").status == 200
    assert call(down, "GET", "/health/ready").status == 503
    assert call(front(MemoryStore()), "GET", "/health/ready").status == 200


def test_metrics_are_text() -> None:
    answer = call(front(MemoryStore()), "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"smq_ready 0.0" in answer.body


def test_a_missing_path_is_a_404_with_a_json_body() -> None:
    answer = call(front(MemoryStore()), "GET", "/nothing")
    assert (answer.status, answer.json) == (404, {"error": "Not Found"})
    assert call(front(MemoryStore()), "GET", "/filer").headers["location"].endswith("/filer/")


class HungStore(MemoryStore):
    """Answers when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = Event()
        self.went: list[bool] = []

    def head(self, key: str) -> Facts:
        self.went.append(self.go.wait(timeout=20))
        return super().head(key)


def test_health_is_answered_while_requests_wait_for_a_hanging_filer() -> None:
    store = HungStore()

    def health() -> dict[str, bool]:
        store.go.set()
        return {"ready": True}

    app = application(store, Space(store, NO_QUOTA, 0), broker(health), frozenset({"ours"}))
    *_, told = at_once(app, [*[Call("GET", "/filer/docs/a")] * 100, Call("GET", "/health")])
    assert told.status == 200
    assert all(store.went)


def test_every_failure_of_a_store_has_a_status() -> None:
    kinds = {each for each in vars(errors).values() if isinstance(each, type)}
    failures = {each for each in kinds if issubclass(each, errors.StoreError)}
    assert failures - {errors.MadeByNewer} == {kind for kind, _ in STATUSES}  # Of a start only.


def test_a_store_that_is_down_is_counted_when_it_is_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = Flaky(MemoryStore(), Random(1), probability=1)
    space = Space(store, 10, 0)

    asyncio.run(count_once(space))
    assert "quotas are not counted" in capsys.readouterr().err
    assert not space.counted
    store.probability = 0
    asyncio.run(count_once(space))
    assert space.counted


def test_the_pause_between_counts_grows_with_their_duration() -> None:
    assert pause_s(0.1) == 60
    assert pause_s(50) == 5000


def test_uploads_wait_until_quotas_are_counted() -> None:
    app = application(MemoryStore(), Space(MemoryStore(), 10, 0), broker(), frozenset())
    answer = call(app, "PUT", "/filer/docs/a", b"x")
    assert (answer.status, answer.json["error"]) == (
        503,
        "docs/a: usage of the quotas is still being counted",
    )
