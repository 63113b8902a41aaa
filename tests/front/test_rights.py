"""What HTTP answers while access rules decide who may do what."""

import pytest

from smq.front.rights import FREE, HttpRights
from smq.testing.memory_store import MemoryStore
from tests.front.asgi import call, front

TOKEN = "s3cret"
FREE_WITH_TOKEN = HttpRights(metrics_token=TOKEN)
RULES, RULES_WITH_TOKEN = HttpRights(has_rules=True), HttpRights(True, TOKEN)


def status(rights: HttpRights, path: str, method: str = "GET", authorization: str = "") -> int:
    app = front(MemoryStore(), rights=rights)
    return call(app, method, path, authorization=authorization).status


@pytest.mark.parametrize("rights", [RULES, RULES_WITH_TOKEN])
@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_whether_the_broker_lives_is_for_all(rights: HttpRights, path: str) -> None:
    assert status(rights, path) == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "POST"])
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/debug",
        "/debug/telemetry",
        "/filer/",
        "/filer/docs/a",
        "/health",
        "/health/live/",
        "/health/live/..",
        "//health/live",
        "/metrics/",
        "/no-such-page",
        "/sql",
        "/topics",
    ],
)
def test_pages_that_rules_cannot_decide_on_are_refused(method: str, path: str) -> None:
    """Not even for a holder of the token, which is for metrics only."""
    assert status(RULES, path, method) == 403
    assert status(RULES_WITH_TOKEN, path, method, authorization=f"Bearer {TOKEN}") == 403


def test_a_refusal_says_why() -> None:
    app = front(MemoryStore(), rights=RULES)
    assert "authorizer.class.name" in call(app, "GET", "/filer/docs/a").json["error"]
    assert "set metrics.token" in call(app, "GET", "/metrics").json["error"]


@pytest.mark.parametrize("rights", [FREE_WITH_TOKEN, RULES_WITH_TOKEN])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_metrics_are_for_holders_of_the_token(rights: HttpRights, scheme: str) -> None:
    assert status(rights, "/metrics", authorization=f"{scheme} {TOKEN}") == 200


@pytest.mark.parametrize("rights", [FREE_WITH_TOKEN, RULES_WITH_TOKEN])
@pytest.mark.parametrize(
    "shown", ["", TOKEN, "Bearer", "Bearer ", "Bearer s3cre", f"Bearer {TOKEN}x", f"Basic {TOKEN}"]
)
def test_another_token_is_refused(rights: HttpRights, shown: str) -> None:
    app = front(MemoryStore(), rights=rights)
    answer = call(app, "GET", "/metrics", authorization=shown)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert TOKEN.encode() not in answer.body


def test_metrics_are_refused_with_rules_and_no_token() -> None:
    assert status(RULES, "/metrics") == 403
    assert status(RULES, "/metrics", authorization="Bearer ") == 403


def test_without_rules_all_is_as_ever() -> None:
    assert status(FREE, "/metrics") == 200
    assert status(FREE, "/health") == 200
    assert status(FREE_WITH_TOKEN, "/filer/docs/a", "PUT") == 201
