"""Who may ask what by HTTP while access rules decide."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from smq.filer.content import crc_of
from smq.filer.local import LocalStore
from smq.front.rights import HttpRights, resource_of, spans_topics
from smq.model.now import Now
from smq.security.acls import Operation, PatternType, Permission
from smq.security.audit import Audit
from smq.testing.memory_store import MemoryStore
from tests.front.asgi import Answer, call, front
from tests.front.users import SUPER, as_user, may, may_with_cluster, rights_for

TOKEN = "s3cret"
FREE, FREE_WITH_TOKEN = HttpRights(), HttpRights(metrics_tokens=lambda: [TOKEN])
RULES, RULES_WITH_TOKEN = rights_for(), rights_for(token=TOKEN)


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
        "//",
        "//debug",
        "//filer/docs/a",
        "//topics",
        "/consoles",
        "/topics2",
        "/debugging",
        "/filer",
        "/health/",
        "/health/live/",
        "/health/live/..",
        "//health/live",
        "/metrics/",
        "/no-such-page",
        "/sql/",
        "/static/console.css",
    ],
)
def test_pages_that_rules_cannot_decide_on_are_refused(method: str, path: str) -> None:
    """Not even for a super user, or a holder of the token, which is for metrics only."""
    root = as_user(SUPER)
    assert call(front(MemoryStore(), rights=RULES), method, path, **root).status == 403
    assert status(RULES, path, method) == 403
    assert status(RULES_WITH_TOKEN, path, method, authorization=f"Bearer {TOKEN}") == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"),
        ("GET", "/debug"),
        ("GET", "/debug/logs"),
        ("GET", "/filer/"),
        ("GET", "/filer/docs/a"),
        ("PUT", "/filer/docs/a"),
        ("DELETE", "/filer/docs/a"),
        ("POST", "/sql"),
    ],
)
def test_a_request_without_a_login_is_asked_for_one(method: str, path: str) -> None:
    app = front(MemoryStore(), rights=RULES_WITH_TOKEN)
    for authorization in ("", f"Bearer {TOKEN}"):
        answer = call(app, method, path, authorization=authorization, x_smq_token="x")
        assert (answer.status, answer.headers["www-authenticate"][:5]) == (401, "Basic")


def test_a_refusal_says_why() -> None:
    app = front(MemoryStore(), rights=RULES)
    assert "authorizer.class.name" in call(app, "GET", "/no-such").json["error"]
    assert "/console/login" in call(app, "POST", "/topics").json["error"]
    assert "who you are" in call(app, "GET", "/filer/docs/a").json["error"]
    assert "set metrics.token" in call(app, "GET", "/metrics").json["error"]


# --- the cluster's pages -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/health", Operation.DESCRIBE),
        ("/debug", Operation.ALTER),
        ("/debug/logs", Operation.ALTER),
    ],
)
def test_pages_about_the_cluster_need_a_right_on_it(path: str, operation: Operation) -> None:
    app = front(MemoryStore(), rights=rights_for(may_with_cluster("alice", operation)))
    assert call(app, "GET", path, **as_user("alice")).status == 200
    assert call(app, "GET", path, **as_user(SUPER)).status == 200
    refused = call(app, "GET", path, **as_user("bob"))
    assert (refused.status, operation.name in refused.json["error"]) == (403, True)


# --- the filer -----------------------------------------------------------------------------------

A_SEGMENT, OTHERS = "topics/kafka/orders/partition=0/0-9-1.parquet", "topics/kafka/wages/x"


def ask(app: object, user: str, method: str, key: str, body: bytes = b"") -> Answer:
    return call(app, method, f"/filer/{key}", body, **as_user(user))  # type: ignore[arg-type]


def filled_store() -> MemoryStore:
    store = MemoryStore()
    for key in (A_SEGMENT, OTHERS, "docs/a", "docs/secret", "notes/b"):
        with store.writing(key) as sink:
            sink.write(b"12345")
    return store


def test_a_reader_of_a_topic_reads_its_files_alone() -> None:
    app = front(filled_store(), rights=rights_for(may("alice", Operation.READ, "orders")))
    assert ask(app, "alice", "GET", A_SEGMENT).body == b"12345"
    assert ask(app, "alice", "HEAD", A_SEGMENT).status == 200
    listed = ask(app, "alice", "GET", "topics/kafka/orders/")
    assert [each["key"] for each in listed.json["objects"]] == [A_SEGMENT]
    for key in (OTHERS, "topics/kafka/wages/none", "topics/kafka/none/x", "docs/a", "docs/none"):
        assert ask(app, "alice", "GET", key).status == ask(app, "alice", "HEAD", key).status == 403
    assert ask(app, "bob", "GET", A_SEGMENT).status == 403


@pytest.mark.parametrize(
    "prefix",
    ["", "t", "topics/", "topics/kafka/", "topics/kafka/orders", "payloads/", "payloads/kafka/o"],
)
def test_only_a_super_user_lists_what_may_be_several_topics(prefix: str) -> None:
    rules = [may("alice", Operation.READ, "*")]
    app = front(filled_store(), rights=rights_for(*rules))
    path = f"?prefix={prefix}"
    assert ask(app, "alice", "GET", path).status == 403
    assert ask(app, SUPER, "GET", path).status == 200


def test_files_are_topics_named_filer_for_the_rules() -> None:
    docs = may("alice", Operation.READ, "filer/docs/", how=PatternType.PREFIXED)
    writes = may("alice", Operation.WRITE, "filer/docs/a")
    app = front(filled_store(), rights=rights_for(docs, writes))
    listed = ask(app, "alice", "GET", "docs/")
    assert [each["key"] for each in listed.json["objects"]] == ["docs/a", "docs/secret"]
    assert ask(app, "alice", "GET", "?prefix=docs/s").status == 200
    assert ask(app, "alice", "GET", "docs/secret").status == 200
    assert ask(app, "alice", "PUT", "docs/a", b"new").status == 200
    assert ask(app, "alice", "PUT", "docs/secret", b"new").status == 403
    assert ask(app, "alice", "DELETE", "docs/a").status == 403
    assert ask(app, "alice", "GET", "notes/b").status == 403
    assert ask(app, "alice", "GET", "notes/").status == 403


def test_a_list_is_for_who_may_read_all_that_begins_so() -> None:
    """Its cursor named files that its reader could not read."""
    docs = may("alice", Operation.READ, "filer/docs/", how=PatternType.PREFIXED)
    denied = may("alice", Operation.READ, "filer/docs/s")
    denied = denied._replace(entry=denied.entry._replace(permission=Permission.DENY))
    one = may("bob", Operation.READ, "filer/docs/a")
    app = front(filled_store(), rights=rights_for(docs, denied, one))
    for user, path in (("alice", "docs/"), ("alice", "docs/?prefix=s"), ("bob", "docs/?prefix=a")):
        refused = ask(app, user, "GET", f"{path}")
        assert (refused.status, "READ on all topics" in refused.json["error"]) == (403, True)
    listed = ask(app, "alice", "GET", "docs/?prefix=a")
    assert [each["key"] for each in listed.json["objects"]] == ["docs/a"]
    assert ask(app, "bob", "GET", "docs/a").status == 200


def test_a_writer_does_not_learn_which_other_files_there_are(tmp_path: Path) -> None:
    names = ["docs/a/b", "docs"]
    writes = [may(user, Operation.WRITE, f"filer/{n}") for n in names for user in ("alice", "bob")]
    reads = may("alice", Operation.READ, "filer/docs", how=PatternType.PREFIXED)
    store = LocalStore(tmp_path / "filer")
    with store.writing("docs/a") as sink:
        sink.write(b"12345")
    app = front(store, rights=rights_for(*writes, reads))
    for name in names:
        told = {user: ask(app, user, "PUT", name, b"x") for user in ("alice", "bob", SUPER)}
        assert {each.status for each in told.values()} == {409}
        for user in ("alice", "bob"):  # Who may read this file may not read those in its way.
            assert told[user].json["error"] == f"{name}: this name cannot be taken"
        assert "object" in told[SUPER].json["error"]


PAYLOAD = f"payloads/kafka/wages/{'0' * 32}-000000000005-{crc_of(b'12345', 0):08x}"
WAGES = "topics/kafka/wages/partition=0/0-9-1.parquet"
FORMS = "/filer/{key}", "/filer/{key}/", "/filer/?prefix={key}", "/filer/{key}/?limit=1"
TWINS = [  # What there is of others, and the like of it that there is not.
    (WAGES, WAGES.replace("wages", "nobodys")),
    (WAGES, WAGES.replace("0-9-1", "8-9-1")),
    (PAYLOAD, PAYLOAD.replace("wages", "nobodys")),
    (PAYLOAD, PAYLOAD.replace("0000-", "0001-")),
    ("docs/secret", "docs/nothing"),
    ("docs/secret/below", "docs/nothing/below"),
    ("docs", "dogs"),
]
CONDITIONS: list[dict[str, str]] = [
    {},
    {"if-match": "*"},
    {"if-none-match": "*"},
    {"if-match": '"1"'},
    {"range": "bytes=0-1"},
    {"range": "bytes=999-"},
    {"expect": "100-continue"},
    {"content-length": "99999999999999"},
]


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS"])
def test_a_reader_of_one_topic_learns_nothing_of_others(
    method: str, conditions: dict[str, str], tmp_path: Path
) -> None:
    """No bytes, names or sizes, and not whether there is something, by no route."""
    store = LocalStore(tmp_path / "filer")
    kept = sorted((WAGES, PAYLOAD, "docs/secret", A_SEGMENT))
    for key in kept:
        with store.writing(key) as sink:
            sink.write(b"12345")
    rules = [may("bob", Operation.READ, name) for name in ("orders", "filer/notes/b")]
    app = front(store, rights=rights_for(*rules), quota_bytes=8)

    def told(key: str, form: str) -> tuple[int, str, dict[str, str]]:
        """The answer without the parts of the key."""
        headers: dict[str, Any] = {**as_user("bob"), **conditions}
        answer = call(app, method, form.format(key=key), b"12345", **headers)
        body = answer.body.decode()
        for part in sorted(key.split("/"), key=len, reverse=True):
            body = body.replace(part, "X")
        return answer.status, body, {**answer.headers, "content-length": ""}

    for there, other in TWINS:
        for form in FORMS:
            assert told(there, form) == told(other, form)
            assert told(there, form)[0] in {400, 401, 403, 405}
    assert [each.key for each in store.list()] == kept


def test_keys_belong_to_topics_or_are_files() -> None:
    assert resource_of("topics/kafka/orders/partition=0/1.parquet") == "orders"
    assert resource_of("payloads/kafka/orders/id") == "orders"
    assert resource_of("payloads/ns/orders/id") == "ns.orders"
    assert resource_of("topics/kafka/orders") == "filer/topics/kafka/orders"
    assert resource_of("docs/topics/kafka/orders/x") == "filer/docs/topics/kafka/orders/x"
    assert not spans_topics("topics/kafka/orders/")
    assert not spans_topics("docs/")


@pytest.mark.parametrize("path", ["..%2f..%2fx", "topics/kafka/orders/../wages/x", "docs/./a"])
def test_a_crooked_key_is_no_way_round(path: str) -> None:
    rules = [may("alice", Operation.READ, "orders")]
    app = front(filled_store(), rights=rights_for(*rules))
    assert ask(app, "alice", "GET", path).status in {400, 403}


Denied = tuple[str, str, str, str]


@pytest.mark.parametrize(
    ("method", "path", "denied"),
    [
        ("GET", "/filer/docs/a", ("HTTP GET /filer", "READ", "TOPIC", "filer/docs/a")),
        ("PUT", "/filer/docs/a", ("HTTP PUT /filer", "WRITE", "TOPIC", "filer/docs/a")),
        ("DELETE", "/filer/docs/a", ("HTTP DELETE /filer", "DELETE", "TOPIC", "filer/docs/a")),
        ("GET", "/filer/docs/", ("HTTP GET /filer", "READ", "TOPIC", "filer/docs/*")),
        ("GET", "/filer/topics/", ("HTTP GET /filer", "READ", "TOPIC", "topics/*")),
        ("GET", "/filer/payloads/kafka/orders/", ("HTTP GET /filer", "READ", "TOPIC", "orders")),
        ("GET", "/health", ("HTTP GET /health", "DESCRIBE", "CLUSTER", "kafka-cluster")),
        ("GET", "/debug/stacks", ("HTTP GET /debug", "ALTER", "CLUSTER", "kafka-cluster")),
        ("BREW", "/debug", ("HTTP ? /debug", "ALTER", "CLUSTER", "kafka-cluster")),
    ],
)
def test_a_refusal_is_audited(method: str, path: str, denied: Denied) -> None:
    audit = Audit()
    app = front(MemoryStore(), rights=rights_for(audit=audit))
    assert call(app, method, path, b"", **as_user("bob")).status == 403
    lines = [json.loads(line) for line in audit.take_accesses(Now(0, 0))]
    [line] = [each for each in lines if each["event"] == "denied"]
    assert (line["principal"], line["host"], line["listener"]) == ("User:bob", "127.0.0.1", "HTTP")
    told = (line["api"], line["operation"], line["resource_type"], line["resource"])
    assert told == denied


def test_logins_are_audited_without_the_name_of_who_fails() -> None:
    audit = Audit()
    app = front(MemoryStore(), rights=rights_for(audit=audit))
    for headers in (as_user("bob"), as_user("bob"), as_user("s3cret", "wrong")):
        call(app, "GET", "/health", **headers)
    lines = [json.loads(line) for line in audit.take_accesses(Now(0, 0))]
    of_logins = [each for each in lines if "login" in each["event"]]
    told = [(each["event"], each.get("principal"), each["detail"]) for each in of_logins]
    assert told == [("login", "User:bob", "password"), ("failed login", None, "password")]
    assert "s3cret" not in json.dumps(lines)


# --- metrics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rights", [FREE_WITH_TOKEN, RULES_WITH_TOKEN])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_metrics_are_for_holders_of_the_token(rights: HttpRights, scheme: str) -> None:
    assert status(rights, "/metrics", authorization=f"{scheme} {TOKEN}") == 200


@pytest.mark.parametrize("rights", [FREE_WITH_TOKEN, RULES_WITH_TOKEN])
@pytest.mark.parametrize(
    "shown",
    [
        *("", TOKEN, "Bearer", "Bearer ", "Bearer s3cre", f"Bearer {TOKEN}x", f"Basic {TOKEN}"),
        f"Basic {b64encode(b'root:toor').decode()}",
    ],
)
def test_another_token_is_refused(rights: HttpRights, shown: str) -> None:
    app = front(MemoryStore(), rights=rights)
    answer = call(app, "GET", "/metrics", authorization=shown)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert TOKEN.encode() not in answer.body


def test_tokens_follow_one_another() -> None:
    known = ["old"]
    rights = HttpRights(metrics_tokens=lambda: known)

    def answers(token: str) -> int:
        return status(rights, "/metrics", authorization=f"Bearer {token}")

    assert (answers("old"), answers("new")) == (200, 401)
    known.append("new")
    assert (answers("old"), answers("new")) == (200, 200)
    known.remove("old")
    assert (answers("old"), answers("new")) == (401, 200)
    known.clear()
    assert answers("") == answers("new") == status(rights, "/metrics") == 401


def test_metrics_are_refused_with_rules_and_no_token() -> None:
    assert status(RULES, "/metrics") == 403
    assert status(RULES, "/metrics", authorization="Bearer ") == 403


def test_without_rules_all_is_as_ever() -> None:
    assert status(FREE, "/metrics") == 200
    assert status(FREE, "/health") == 200
    assert status(FREE_WITH_TOKEN, "/filer/docs/a", "PUT") == 201
