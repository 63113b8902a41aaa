"""Checks of rights and logins that are left out."""

from base64 import b64encode
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from gateway import login
from gateway.apis import init_producer_id
from gateway.fetch import rules
from gateway.fetch.answer import Fetching
from smq.app.coordinator.errands import Errands
from smq.app.shard.connections.connection import Connection
from smq.app.shard.connections.newcomers_queue import NewcomersQueue
from smq.app.shard.requests import answering, requests
from smq.app.shard.requests.logins import Logins
from smq.app.shard.server import ShardServer
from smq.model.errors import BrokerError
from smq.security import fair_queue
from smq.security.acls import AclBinding, Operation, ResourceType
from smq.security.credentials import ScramCredential
from smq.security.fair_queue import FairQueue
from smq.security.plain import PlainServer
from smq.security.principals import Peer
from smq.security.rights import Rights
from smq.security.sasl import SaslServer, Work
from smq.security.scram import ScramServer
from smq.shard import unfinished
from smq.shard.fetch_sessions import FetchSession, Serving
from smq.shard.shard import Shard
from smq.store.access import AccessTables
from smq.testing.simulation.defects.mutant import Change, Mutant
from smq.testing.simulation.people import TELLERS_TOPICS
from smq.testing.simulation.securing import FREEZE, INTRUDE, SCENES
from smq.testing.simulation.transacting import CHECKPOINT, TRANSACT
from smq.wire.internal.form import Question
from smq.wire.internal.frames import WrittenPeer
from smq.wire.internal.messages import FollowRights

_ask, _check, _may, _respond = Errands.ask, Rights.check, Rights.may, PlainServer.respond

SECURED = frozenset({"create", FREEZE}) | SCENES
INTRUDING = frozenset({"create", INTRUDE})
DYING = SECURED | {"kill", "kill-all", "cut-power", "disk-is-slow"}
TELLING = SECURED | {TRANSACT, CHECKPOINT, "kill"}


def _refuse_nothing(
    _data: np.ndarray, _plan: np.ndarray, shard: Shard, rights: Rights, _first: int = 0
) -> None:
    """Whoever has logged in may write."""


def _may_read(*_asked: object) -> bool:
    """Whoever has logged in may read."""
    return True


def _versions_of_topics(self: Fetching) -> tuple[int, int]:
    """What a fetch may read is decided when it comes, and when topics change."""
    return self._context.shard.catalog_version, 0


def _follow_nothing(_self: FetchSession, _shard: Serving, _rights: Rights) -> bool:
    """A session tells what has come, and nothing else."""
    return True


def _expire_later(_self: Logins, _connection: Connection) -> None:
    """A session has no end."""


def _keep_connections(self: ShardServer) -> None:
    """Answer what waits by the rights of now; who has logged in stays."""
    access = self._shard.access
    access.refresh()
    if access.version != self._access_version:
        self._access_version = access.version
        self.polls.look_again()


def _ask_of_all_else(
    self: Errands, node: int, question: Question[Any], answered: Callable[[Any], None]
) -> None:
    """The shards look at rights when they have something else to do."""
    if not isinstance(question, FollowRights):
        _ask(self, node, question, answered)


def _add_lazily(self: AccessTables, new: Iterable[AclBinding]) -> None:
    """Rules survive a death, and no power cut."""
    self._database.change_many(
        "INSERT INTO acls VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*pattern, *entry) for pattern, entry in new],
        lazy=True,
    )


def _delete_lazily(self: AccessTables, gone: Iterable[AclBinding]) -> None:
    """So do their ends."""
    self._database.change_many(
        "DELETE FROM acls WHERE resource_type = ? AND name = ? AND pattern_type = ? "
        "AND principal = ? AND host = ? AND operation = ? AND permission = ?",
        [(*pattern, *entry) for pattern, entry in gone],
        lazy=True,
    )


def _never_changes(_server: SaslServer) -> bool:
    """Who has begun to log in may end it."""
    return False


def _check_topics_too(
    self: Rights, operation: Operation, resource_type: ResourceType, name: str
) -> None:
    """Who ends a transaction must still have the right to its topics."""
    _check(self, operation, resource_type, name)
    if resource_type is ResourceType.TRANSACTIONAL_ID:
        _check(self, operation, ResourceType.TOPIC, TELLERS_TOPICS)


def _check_no_rights(_transactional_id: str | None, _rights: Rights) -> None:
    """Everybody may begin."""


def _take_all(
    self: NewcomersQueue, connection: Connection, work: Callable[[Connection], None]
) -> None:
    """Whoever has not logged in is served at once."""
    self.shared.spend(lambda: work(connection))


def _call_nobody(_self: NewcomersQueue) -> None:
    """Who waits in line is not resumed."""


def _pop_in_order(self: FairQueue[Any]) -> Any:  # noqa: ANN401  (What they wait with.)
    """The next one is who has waited longest."""
    item = next(iter(self))
    self.discard(item)
    return item


def _let_in(self: PlainServer, token: bytes) -> Work:
    """Whoever names a user is let in."""
    work, user = _respond(self, token), token.split(b"\0")[1].decode()

    def check() -> bytes:
        with suppress(BrokerError):
            work()
        self.user = user
        return b""

    return check


def _end_unproved(self: ScramServer, _text: str, name: str, credential: ScramCredential) -> bytes:
    """A proof is not looked at."""
    self.user = name
    return b"v=" + b64encode(credential.server_key)


def _may_all_with(ignored: ResourceType) -> Callable[..., bool]:
    """Everybody may do everything with what is of a type."""

    def may(self: Rights, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return resource_type is ignored or _may(self, operation, resource_type, name)

    return may


def _written_as_nobody(_principal: str, host: str, listener: str) -> WrittenPeer:
    """A shard relays for a client as for one that nobody has asked who it is."""
    return WrittenPeer(str(Peer().principal), host, listener)


def _is_alone(address: str) -> str:
    """Each address is a network of its own."""
    return address


MUTANTS = (
    Mutant(
        "produce-asks-no-right",
        "records are appended whose client may not write to their topic",
        SECURED,
        (
            Change(requests, "refuse_topics", _refuse_nothing),
            Change(unfinished, "refuse_topics", _refuse_nothing),
        ),
        seed=1,
    ),
    Mutant(
        "fetch-asks-no-right",
        "records are read by a client that may not",
        SECURED,
        (Change(rules, "_may_read", _may_read),),
        seed=1,
    ),
    Mutant(
        "parked-fetch-keeps-its-right",
        "a fetch that waits is served by the right that it came with",
        SECURED,
        (Change(Fetching, "_versions", _versions_of_topics),),
        seed=1,
    ),
    Mutant(
        "fetch-session-keeps-its-right",
        "a session tells nothing of a right that is gone until there are records",
        SECURED,
        (Change(FetchSession, "follow_rights", _follow_nothing),),
        seed=11,
    ),
    Mutant(
        "session-does-not-expire",
        "a connection is served after its session",
        SECURED,
        (Change(Logins, "_expire", _expire_later),),
        seed=2,
    ),
    Mutant(
        "password-changes-silently",
        "a connection is served whose user has another password, or is deleted",
        SECURED,
        (Change(ShardServer, "_follow_access", _keep_connections),),
        seed=1,
    ),
    Mutant(
        "login-ends-with-what-it-began-with",
        "a login is completed with a password that has changed meanwhile",
        SECURED,
        (Change(login, "_has_changed", _never_changes),),
        seed=1,
    ),
    Mutant(
        "rights-change-silently",
        "shards are not woken for other rights, as kernels' turns would go on",
        SECURED,
        (Change(Errands, "ask", _ask_of_all_else),),
        seed=5,
    ),
    Mutant(
        "newcomers-hold-the-loop",
        "all that have not logged in are served in the turn in which they come",
        SECURED,
        (Change(NewcomersQueue, "run", _take_all),),
        seed=1,
    ),
    Mutant(
        "newcomers-are-not-resumed",
        "who has come while another one was logging in gets no turn",
        SECURED,
        (Change(NewcomersQueue, "_call", _call_nobody),),
        seed=1,
    ),
    Mutant(
        "addresses-take-no-turns",
        "many that come from one address are served before one from another that came later",
        SECURED,
        (Change(FairQueue, "pop", _pop_in_order),),
        seed=1,
    ),
    Mutant(
        "networks-take-no-turns",
        "who has many addresses is served at each of them before one of another network is",
        SECURED,
        (Change(fair_queue, "neighbourhood_of", _is_alone),),
        seed=1,
    ),
    Mutant(
        "rules-are-not-durable",
        "a rule that is answered, or its end, does not survive a power cut",
        DYING,
        (
            Change(AccessTables, "add_rules", _add_lazily),
            Change(AccessTables, "delete_rules", _delete_lazily),
        ),
        seed=4,
    ),
    Mutant(
        "ends-ask-for-rights-to-topics",
        "a transaction is stranded whose producer may not write to its topics any more",
        TELLING,
        (
            Change(Rights, "check", _check_topics_too),
            Change(init_producer_id, "_check_rights", _check_no_rights),
        ),
        seed=8,
    ),
    Mutant(
        "plain-takes-any-password",
        "a user logs in by PLAIN with a password that is wrong",
        SECURED,
        (Change(PlainServer, "respond", _let_in),),
        seed=1,
    ),
    Mutant(
        "scram-takes-any-proof",
        "a user logs in by SCRAM with a password that is wrong",
        SECURED,
        (Change(ScramServer, "_end", _end_unproved),),
        seed=1,
    ),
    *(
        Mutant(
            f"nobody-asks-for-rights-to-{kind.name.lower().replace('_', '-')}s",
            f"{whose} is used by a client that may not",
            INTRUDING,
            (Change(Rights, "may", _may_all_with(kind)),),
            seed=1,
        )
        for kind, whose in (
            (ResourceType.TRANSACTIONAL_ID, "a transactional id"),
            (ResourceType.GROUP, "a group"),
            (ResourceType.CLUSTER, "the cluster"),
        )
    ),
    Mutant(
        "relays-name-nobody",
        "the coordinator takes a client for another one, who may do everything",
        INTRUDING,
        (Change(answering, "WrittenPeer", _written_as_nobody),),
        seed=1,
    ),
)
