"""A desk that has what a test puts on it, and an application around it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from smq.filer.local import LocalStore
from smq.filer.store import Store
from smq.front.console.console import Console
from smq.front.console.desk import (
    BrokerSetting,
    Denial,
    FoundRecords,
    GroupRow,
    Move,
    NewRecord,
    PassedOver,
    Ruling,
    ShownGroup,
    ShownRecord,
    ShownReference,
    ShownSetting,
    ShownUser,
    Wanted,
)
from smq.front.console.guard import Guard
from smq.front.console.history import History
from smq.front.console.routes import console_routes
from smq.front.gate import Gate
from smq.front.metrics.facts import Facts, GroupOffset, PartitionFacts, ProcessFacts
from smq.front.rights import FREE, HttpRights
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import AclBinding, Operation, ResourceType
from smq.security.audit import AdminAct
from smq.security.principals import Peer
from smq.store.config_changes import ConfigChange
from tests.front.asgi import Answer, call
from tests.front.users import may

NOWHERE = LocalStore(Path("/nonexistent/filer"))
TOKEN = "the-token"
HOSTILE = "<script>alert('x')</script>\u202e"
FACTS = Facts(
    version="1",
    is_ready=True,
    started_ms=0,
    processes=[ProcessFacts("shard-1", True, 0), ProcessFacts("sealer", False, 3)],
    partitions=[PartitionFacts("clicks", n, 1, 5, 25, 1024, 4096, 2) for n in range(3)],
    offsets=[GroupOffset("readers", "clicks", n, 15, 10, 3.0) for n in range(3)],
    members={"readers": 1},
)


def seen(offset: int, value: bytes | None, **fields: Any) -> ShownRecord:
    """A record of clicks-0."""
    made = ShownRecord(
        "clicks", 0, offset, 1_700_000_000_000, b"k", value, (), 1, len(value or b"")
    )
    return made._replace(**fields)


@dataclass
class FakeDesk:
    """Remembers what it was asked to do."""

    records: list[ShownRecord] = field(default_factory=list)
    cursor: dict[int, int] = field(default_factory=dict)
    beyond: list[PassedOver] = field(default_factory=list)
    done: list[Any] = field(default_factory=list)
    members: tuple[Any, ...] = ()
    of_broker: list[BrokerSetting] = field(default_factory=list)
    changed: list[ConfigChange] = field(default_factory=list)

    def read(self, wanted: Wanted) -> FoundRecords:
        self.done.append(wanted)
        if wanted.topic != "clicks":
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no {wanted.topic}")
        return FoundRecords(
            records=self.records,
            cursor=self.cursor,
            looked=7,
            looked_bytes=70,
            beyond=self.beyond,
        )

    def record(self, topic: str, partition: int, offset: int) -> ShownRecord | None:
        at = (topic, partition, offset)
        return next((x for x in self.records if (x.topic, x.partition, x.offset) == at), None)

    def produce(self, record: NewRecord) -> tuple[int, int]:
        self.done.append(record)
        return 0, 41

    def settings(self, topic: str) -> list[ShownSetting]:
        if topic != "clicks":
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no {topic}")
        return [
            ShownSetting("retention.ms", "5", True, False),
            ShownSetting("x", HOSTILE, False, True),
        ]

    def broker_settings(self) -> list[BrokerSetting]:
        return self.of_broker

    def set_broker(self, name: str, value: str | None) -> None:
        self.done.append(("set broker", name, value))

    def changes(self, count: int) -> list[ConfigChange]:
        return self.changed[:count]

    def references(self, payload: str) -> list[ShownReference]:
        return [ShownReference("clicks", 1, 100, 200)] if payload == "known" else []

    def create(self, topic: str, partitions: int | None, configs: Mapping[str, str]) -> int:
        self.done.append(("create", topic, partitions, dict(configs)))
        return 1

    def delete(self, topic: str) -> None:
        self.done.append(("delete", topic))

    def set(self, topic: str, name: str, value: str | None) -> None:
        self.done.append(("set", topic, name, value))

    def add_partitions(self, topic: str, added: int) -> int:
        self.done.append(("add", topic, added))
        return 3 + added

    def groups(self) -> list[GroupRow]:
        return [GroupRow("readers", "Stable"), GroupRow(HOSTILE, "Empty")]

    def group(self, group: str) -> ShownGroup:
        return ShownGroup(group, "Stable", "consumer range", self.members)

    def moves(self, group: str, topic: str, place: str) -> list[Move]:
        self.done.append(("moves", group, topic, place))
        return [Move("clicks", 0, 15, 5, 25), Move("clicks", 1, None, 5, 25)]

    def reset(self, group: str, moves: Sequence[Move]) -> None:
        self.done.append(("reset", group, list(moves)))

    def delete_group(self, group: str) -> None:
        self.done.append(("delete group", group))

    def users(self) -> list[ShownUser]:
        return [ShownUser("alice", ("SCRAM-SHA-256, 4096 iterations",)), ShownUser(HOSTILE, ())]

    def delete_user(self, user: str) -> None:
        self.done.append(("delete user", user))

    def rules(self, kind: ResourceType, name: str) -> list[AclBinding]:
        self.done.append(("rules", kind, name))
        return [may("alice", Operation.READ, "clicks"), may(HOSTILE, Operation.READ, "wages")]

    def rulings(
        self, operation: Operation, kind: ResourceType, name: str, host: str
    ) -> list[Ruling]:
        self.done.append(("rulings", operation, kind, name, host))
        return [
            Ruling("User:alice", True, "a rule allows it", "ALLOW …"),
            Ruling(HOSTILE, False, "", ""),
        ]

    def denials(self, count: int) -> list[Denial]:
        self.done.append(("denials", count))
        who = "User:bob", "10.0.0.9", "HTTP", "Fetch", "READ", "TOPIC", HOSTILE
        return [Denial("2026-11-30T01:02:03Z", *who, "7")]


@dataclass
class Browser:
    """Asks the console of a desk, from this host unless `host` is another."""

    desk: FakeDesk = field(default_factory=FakeDesk)
    facts: Facts = FACTS
    history: History = field(default_factory=History)
    store: Store = NOWHERE
    decoded: dict[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    rights: HttpRights = FREE
    asked_for: list[Peer | None] = field(default_factory=list)
    cookie: str = ""
    acts: list[tuple[Peer, str, AdminAct]] = field(default_factory=list)
    sessions_at_acts: list[int] = field(default_factory=list)

    def get(self, path: str, **headers: Any) -> Answer:
        """A page."""
        return call(self.app(), "GET", path, **self._cookies(), **headers)

    def log_in(self, user: str, **fields: str) -> Answer:
        """Fill in the page where users log in; the password is the name backwards."""
        given = {"user": user, "password": user[::-1], **fields}
        answer = self.send("/console/login", **given)
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer

    def send(self, path: str, **fields: str) -> Answer:
        """A form, as a browser sends it without a script."""
        body = urlencode(fields).encode()
        return call(self.app(), "POST", path, body, **self._cookies())

    @property
    def token(self) -> str:
        """That of the session, from a page of it."""
        found = re.search('name="smq-token" content="([^"]+)"', self.text("/"))
        assert found
        return found[1]

    def _cookies(self) -> dict[str, Any]:
        return {"cookie": self.cookie} if self.cookie else {}

    def text(self, path: str) -> str:
        """A page that is there."""
        answer = self.get(path)
        assert answer.status == 200, answer.body
        return answer.body.decode()

    def send_bytes(self, path: str, body: bytes) -> Answer:
        """An action whose form is written so."""
        return call(self.app(), "POST", path, body, x_smq_token=TOKEN, **self._cookies())

    def post(self, path: str, token: str = TOKEN, **fields: str) -> Answer:
        """An action."""
        body = urlencode(fields).encode()
        return call(self.app(), "POST", path, body, x_smq_token=token, **self._cookies())

    def said(self, path: str, **fields: str) -> str:
        """What an action answers that succeeds."""
        answer = self.post(path, **fields)
        assert answer.status == 200, answer.body
        return answer.body.decode()

    async def _acted(self, peer: Peer, api: str, act: AdminAct) -> None:
        self.acts.append((peer, api, act))
        self.sessions_at_acts.append(len([*self.rights.sessions]))

    def _desk_of(self, peer: Peer | None) -> FakeDesk:
        self.asked_for.append(peer)
        return self.desk

    def console(self) -> Console:
        """The console that it opens."""
        return Console(
            lambda: self.facts,
            self.history,
            self._desk_of,
            self.store,
            lambda *_: self.decoded,
            Guard(TOKEN, has_rules=self.rights.has_rules),
            self.rights,
            self._acted,
        )

    def app(self) -> ASGIApp:
        """The application, with its state, of one moment."""
        routes = console_routes(self.console())
        inner = Gate(Starlette(routes=routes), frozenset(), routes, self.rights)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await inner({**scope, "client": (self.host, 5)}, receive, send)

        return app


def with_groups(count: int) -> Facts:
    """The facts with offsets of so many partitions of one group."""
    rows = [GroupOffset("readers", "clicks", n, 1, 1, None) for n in range(count)]
    return replace(FACTS, offsets=rows)
