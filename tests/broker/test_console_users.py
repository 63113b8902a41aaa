"""The console of a broker with access rules: what each user sees and may change there, at a real
broker, and that the audit log has its name."""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlencode

import pytest

from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import CLUSTER_NAME, Operation, ResourceType
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.app.http_client import Answer, ask
from tests.broker.guarded import allow
from tests.broker.users import STRONGER, WEAKER, add_users, remove_user

pytestmark = pytest.mark.timeout(180)
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:root",
    "http.port": "0",
    "shards": "2",
}
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


class Tab(NamedTuple):
    """A browser in which a user has logged in."""

    broker: SmqBroker
    cookie: str

    def get(self, path: str) -> Answer:
        return ask(self.broker, "GET", path, cookie=self.cookie)

    def text(self, path: str) -> str:
        answer = self.get(path)
        assert answer.status == 200, answer.body
        return answer.body.decode().partition("<main")[2]

    def post(self, path: str, **fields: str) -> Answer:
        token = re.search('name="smq-token" content="([^"]+)"', self.get("/").body.decode())
        assert token
        return ask(
            self.broker,
            "POST",
            path,
            urlencode(fields).encode(),
            cookie=self.cookie,
            x_smq_token=token[1],
            content_type="application/x-www-form-urlencoded",
        )


def log_in(broker: SmqBroker, user: str, password: str | None = None) -> Tab:
    body = urlencode({"user": user, "password": user[::-1] if password is None else password})
    answer = ask(broker, "POST", "/console/login", body.encode())
    assert answer.status == 303, answer.body
    return Tab(broker, answer.headers["set-cookie"].partition(";")[0])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("b"), SETTINGS) as broker:
        names = ("alice", "bob", "root", "carol", "dora")
        add_users(broker.bootstrap, {name: name[::-1] for name in names})
        with broker.connect() as client:
            for topic in ("clicks", "wages"):
                client.create_topic(topic, 2)
                with client.producer() as producer:
                    producer.send(topic, f"secret-of-{topic}".encode(), partition=0).result(30)
                with client.consumer(topic, group=f"of-{topic}", start="earliest") as consumer:
                    eventually(lambda c=consumer: len(c.poll(1)) > 0, "a record")
                    consumer.commit()
        for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
            allow(broker, "alice", TOPIC, "clicks", operation)
        allow(broker, "alice", GROUP, "of-clicks", Operation.READ)
        allow(broker, "carol", TOPIC, "clicks", Operation.ALL)
        allow(broker, "carol", GROUP, "of-clicks", Operation.ALL)
        allow(broker, "dora", ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE_CONFIGS)
        yield broker


OF_CLICKS = [
    "/topics/clicks",
    "/topics/clicks/messages",
    "/topics/clicks/messages?text=secret",
    "/topics/clicks/messages/0/0",
    "/topics/clicks/messages/0/0/value",
    "/groups/one?group=of-clicks",
    "/files?in=topics/kafka/clicks/",
]
SHOW_RECORDS = OF_CLICKS[1:5]


@pytest.mark.parametrize("path", OF_CLICKS)
def test_pages_of_a_topic_are_for_its_readers(broker: SmqBroker, path: str) -> None:
    alice, bob, root = (log_in(broker, name) for name in ("alice", "bob", "root"))
    other = path.replace("clicks", "wages")
    assert [each.get(path).status for each in (bob, alice, root)] == [403, 200, 200]
    assert [each.get(other).status for each in (bob, alice, root)] == [403, 403, 200]
    assert alice.get(path.replace("clicks", "none")).status == 403
    if path in SHOW_RECORDS:
        assert b"secret-of-clicks" in alice.get(path).body
        assert b"secret-of-wages" in root.get(other).body


@pytest.mark.parametrize("path", ["/", "/topics", "/groups"])
def test_lists_name_what_a_user_may_describe(broker: SmqBroker, path: str) -> None:
    found = {name: log_in(broker, name).text(path) for name in ("bob", "alice", "root")}
    assert "wages" in found["root"] or path == "/"
    assert "clicks" in found["alice"] or path == "/"
    assert "wages" not in found["alice"]
    assert not re.search("wages|clicks", found["bob"])


@pytest.mark.parametrize(
    "path",
    ["/console/rates", "/console/lag?group=of-clicks", "/settings", "/files", "/files?in=topics/"],
)
def test_pages_of_the_broker_are_for_who_may_describe_it(broker: SmqBroker, path: str) -> None:
    found = [log_in(broker, name).get(path).status for name in ("bob", "alice", "dora", "root")]
    assert found == [403, 403, 200 if path == "/settings" else 403, 200]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/topics", {"name": "another"}),
        ("/topics/clicks/settings", {"name": "retention.ms", "value": "1"}),
        ("/topics/clicks/partitions", {"added": "1"}),
        ("/topics/clicks/delete", {"confirm": "clicks"}),
        ("/topics/clicks/messages", {"value": "x"}),
        ("/groups/reset?group=of-clicks", {"do": "commit", "plan": "wages,0,0"}),
        ("/groups/delete?group=of-clicks", {"confirm": "of-clicks"}),
        ("/settings", {"name": "log.retention.ms", "value": "1000"}),
    ],
)
def test_a_reader_changes_nothing(broker: SmqBroker, path: str, fields: dict[str, str]) -> None:
    for name in ("bob", "alice"):
        answer = log_in(broker, name).post(path, **fields)
        assert answer.status == 403, answer.body
    root = log_in(broker, "root")
    assert "another" not in root.text("/topics")
    assert "of-clicks" in root.text("/groups")
    assert "2" in root.text("/topics/clicks")


def test_a_change_is_its_user_s_in_the_audit_log(broker: SmqBroker) -> None:
    carol = log_in(broker, "carol")
    changed = carol.post("/topics/clicks/settings", name="retention.ms", value="7654321")
    assert (changed.status, carol.post("/topics", name="another").status) == (200, 403)
    assert carol.post("/topics/clicks/messages", value="x").status == 200
    assert "7654321" in carol.text("/topics/clicks")

    def lines(name: str) -> list[dict[str, str]]:
        path = broker.data_dir / "audit" / name
        return [json.loads(line) for line in path.read_text().splitlines()]

    act = next(each for each in lines("acts.log") if each.get("principal") == "User:carol")
    assert (act["host"], act["listener"], act["resource"]) == ("127.0.0.1", "HTTP", "clicks")

    def denied() -> list[dict[str, str]]:
        found = (each for each in lines("access.log") if each["event"] == "denied")
        return [each for each in found if each["principal"] == "User:carol"]

    eventually(denied, "the denial")
    assert {each["listener"] for each in denied()} == {"HTTP"}


def test_a_session_ends_with_its_user_and_with_the_password(broker: SmqBroker) -> None:
    add_users(broker.bootstrap, {"eve": "eve", "zoe": "eoz"})
    eve, zoe = log_in(broker, "eve"), log_in(broker, "zoe")
    assert eve.get("/").status == zoe.get("/").status == 200
    add_users(broker.bootstrap, {"eve": "another"})
    remove_user(broker.bootstrap, "zoe")
    assert eve.get("/").status == zoe.get("/").status == 303
    assert log_in(broker, "eve", "another").get("/").status == 200
    refused = ask(broker, "POST", "/console/login", b"user=zoe&password=eoz")
    assert refused.status == 401


def test_a_session_ends_with_the_password_that_http_takes(broker: SmqBroker) -> None:
    add_users(broker.bootstrap, {"peggy": "old"}, [WEAKER])
    old = log_in(broker, "peggy", "old")
    assert old.get("/").status == 200
    add_users(broker.bootstrap, {"peggy": "new"}, [STRONGER])
    assert old.get("/").status == 303
    new = log_in(broker, "peggy", "new")
    add_users(broker.bootstrap, {"peggy": "newer"}, [WEAKER])
    assert new.get("/").status == 200
    add_users(broker.bootstrap, {"peggy": "newest"}, [STRONGER])
    assert new.get("/").status == 303


def test_a_session_reads_files_and_writes_none(broker: SmqBroker) -> None:
    alice = log_in(broker, "alice")
    assert alice.get("/filer/topics/kafka/clicks/").status == 200
    assert alice.get("/filer/topics/kafka/wages/").status == 403
    for method, path in (("PUT", "/filer/docs/a"), ("DELETE", "/filer/docs/a"), ("POST", "/sql")):
        body = None if method == "DELETE" else b"SELECT 1"
        headers = {"cookie": alice.cookie, "x_smq_token": "x", "content_type": "application/sql"}
        assert ask(broker, method, path, body, **headers).status == 401
    assert alice.get("/health").status == alice.get("/debug").status == 401


def test_a_right_that_goes_is_gone_at_once(broker: SmqBroker) -> None:
    root = log_in(broker, "root")
    bob = log_in(broker, "bob")
    assert bob.get("/topics/clicks/messages").status == 403
    allow(broker, "bob", TOPIC, "clicks", Operation.READ, host="127.0.0.1")
    assert bob.get("/topics/clicks/messages").status == 200
    assert root.get("/topics/clicks/messages").status == 200
