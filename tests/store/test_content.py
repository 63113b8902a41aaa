"""A store that says what no request can have made it say is refused before anybody believes it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from smq.coordinator.transactions.states import TransactionState
from smq.model.catalog import QUOTA, Topic
from smq.model.client_quotas import key_of
from smq.model.errors import StoreError
from smq.security.credentials import ScramMechanism
from smq.security.published import ACCESS_BYTES_MAX, line_of
from smq.store import content
from smq.store.access import stored
from smq.store.content import NAME_BYTES_MAX
from smq.store.copying import check_store
from smq.store.store import Store
from smq.wire.codec import STRING_BYTES_MAX
from tests.security.worlds import worlds
from tests.store.test_access import credential

TOPIC = Topic("flights", UUID(int=7), (1, 2), (0, 0), {"retention.ms": "1000"})
ALICE = key_of({"user": "alice"})
RULE = "2, 't', 3, 'User:a', '*', 3, 3"


def rule(column: int, value: str) -> str:
    """An access rule with one column that is another."""
    columns = RULE.split(", ")
    columns[column] = value
    return f"INSERT INTO acls VALUES ({', '.join(columns)})"


def quota(resource: str, name: str, value: str) -> str:
    return f"INSERT INTO resource_configs VALUES ('{QUOTA}', '{resource}', '{name}', '{value}')"


def user(name: str, mechanism: int = 1, iterations: int = 4096) -> str:
    return (
        "INSERT INTO scram_credentials "
        f"VALUES ({name}, {mechanism}, x'00', x'00', x'00', {iterations})"
    )


def config(name: str, value: str) -> str:
    return f"INSERT INTO configs SELECT id, '{name}', '{value}' FROM topics"


def member(protocols: str) -> str:
    group = "INSERT INTO groups VALUES ('g', 'consumer', 1, 'range', 'm', NULL)"
    columns = "group_id, position, member_id, client_id, client_host, session_timeout_ms, "
    columns += "rebalance_timeout_ms, protocols, assignment"
    return (
        f"{group}; INSERT INTO group_members ({columns}) "
        f"VALUES ('g', 0, 'm', 'c', '/', 1, 1, {protocols}, x'')"
    )


MEMBER = member("x''")


def member_again(member_id: str) -> str:
    columns = "client_id, client_host, session_timeout_ms, rebalance_timeout_ms, assignment"
    return (
        f"{MEMBER}; UPDATE group_members SET instance_id = 'i'; INSERT INTO group_members "
        f"(group_id, position, member_id, instance_id, {columns}, protocols) SELECT group_id, 1, "
        f"{member_id}, {columns}, protocols FROM group_members"
    )


def transaction(state: str, epoch: int) -> str:
    return (
        f"INSERT INTO transactions VALUES ('t', 1, {epoch}, 1, 1, 1, 1, '{state}', 1, 1, 1, 0, 0)"
    )


OTHER_TOPIC = "INSERT INTO topics VALUES ('{0:032x}', '{1}', '{2}', 5)".format
OTHER_PARTITION = (
    "INSERT INTO partitions (number, topic_id, partition, log) VALUES ({1}, '{0:032x}', 0, 0)"
).format
MOVED = "UPDATE partitions SET attempt = 1, epoch = 9, log = 1 WHERE number = 2"


def moved(*rows: str) -> str:
    """Partition 2 has moved to log 1, with other leaderships: epoch, log, start and end."""
    inserts = [f"INSERT INTO leaderships VALUES (2, {row})" for row in rows]
    return "; ".join([MOVED, *inserts])


def letters(count: int) -> str:
    return f"substr(replace(hex(zeroblob({count})), '0', 'a'), 1, {count})"


CRAFTED = [
    (rule(1, letters(40_000)), "acls", "a rule with a name that is too long"),
    (rule(3, f"'User:' || {letters(40_000)}"), "acls", "a rule with a name that is too long"),
    (rule(4, letters(40_000)), "acls", "a rule with a name that is too long"),
    (rule(0, "9"), "acls", "a rule of a kind that there is not"),
    (rule(2, "2"), "acls", "a rule of a kind that there is not"),
    (rule(5, "16"), "acls", "a rule of a kind that there is not"),
    (rule(6, "1"), "acls", "a rule of a kind that there is not"),
    (rule(1, "''"), "acls", "a rule that is about nothing or nobody"),
    (rule(0, "4"), "acls", "a rule that is about nothing or nobody"),
    (rule(3, "'alice'"), "acls", "a rule that is about nothing or nobody"),
    (rule(1, "CAST(x'61ff' AS TEXT)"), "acls", "text that is no UTF-8"),
    (user(letters(40_000)), "scram_credentials", "a name that no user can have"),
    (user("''"), "scram_credentials", "a name that no user can have"),
    (user("'unix/root'"), "scram_credentials", "a name that no user can have"),
    (user("'alice'", 3), "scram_credentials", "keys that no password makes"),
    (user("'alice'", 1, 2**40), "scram_credentials", "keys that no password makes"),
    (quota(ALICE, "producer_byte_rate", "fast"), "resource_configs", "no quota of a client"),
    (quota(ALICE, "producer_byte_rate", "nan"), "resource_configs", "no quota of a client"),
    (quota(ALICE, "connection_creation_rate", "1.0"), "resource_configs", "no quota of a client"),
    (quota("alice", "producer_byte_rate", "1.0"), "resource_configs", "no quota of a client"),
    (quota("[" * 9000, "producer_byte_rate", "1.0"), "resource_configs", "no quota of a client"),
    (quota('[["user", 5]]', "producer_byte_rate", "1.0"), "resource_configs", "no quota"),
    (quota('[["user", "\\u0061"]]', "producer_byte_rate", "1.0"), "resource_configs", "no quota"),
    (quota('[["host", "a"]]', "producer_byte_rate", "1.0"), "resource_configs", "no quota"),
    (quota("a" * 40_000, "producer_byte_rate", "1.0"), "resource_configs", "too long"),
    ("UPDATE topics SET name = '../flights'", "topics", "a name that no topic can have"),
    ("UPDATE topics SET name = '..'", "topics", "a name that no topic can have"),
    ("UPDATE topics SET name = 'a' || char(0) || '/'", "topics", "a name that no topic can have"),
    ("UPDATE topics SET name = 'a' || char(10)", "topics", "a name that no topic can have"),
    (f"UPDATE topics SET name = {letters(300)}", "topics", "a name that no topic can have"),
    ("UPDATE topics SET namespace = 'a/b'", "topics", "a name that no topic can have"),
    ("UPDATE topics SET id = '../' || substr(id, 4)", "topics", "a topic with an impossible id"),
    (
        "UPDATE topics SET id = CAST(x'616100' || CAST(substr(id, 4) AS BLOB) AS TEXT)",
        "topics",
        "a topic with an impossible id",
    ),
    (
        f"{OTHER_TOPIC(1, 'other', 'flights')}; {OTHER_PARTITION(1, 3)}",
        "topics",
        "two topics of one name",
    ),
    ("DELETE FROM partitions WHERE partition = 0", "topics", "lacks some of its partitions"),
    ("DELETE FROM partitions", "topics", "lacks some of its partitions"),
    ("UPDATE partitions SET log = -1", "partitions", "a partition in an impossible place"),
    ("UPDATE partitions SET log = 256", "partitions", "a partition in an impossible place"),
    (
        "UPDATE partitions SET number = 4294967297 WHERE number = 2",
        "partitions",
        "a partition in an impossible place",
    ),
    ("UPDATE partitions SET target = 1", "partitions", "a move that nobody can have begun"),
    ("UPDATE partitions SET attempt = -1", "partitions", "a move that nobody can have begun"),
    ("UPDATE partitions SET epoch = 1 << 31", "partitions", "a move that nobody can have begun"),
    (
        f"{moved('9, 1, 0, NULL')}; UPDATE partitions SET target = 1 WHERE number = 2",
        "partitions",
        "a move that nobody can have begun",
    ),
    (MOVED, "partitions", "a partition that nobody leads"),
    (moved("9, 0, 0, NULL"), "partitions", "a partition that nobody leads"),
    (moved("10, 1, 0, NULL"), "partitions", "a partition that nobody leads"),
    (moved("3, 0, 5, 4", "9, 1, 4, NULL"), "leaderships", "that no log can have had"),
    (moved("3, 256, 0, 4", "9, 1, 4, NULL"), "leaderships", "that no log can have had"),
    (moved("3, 0, 0, 4", "9, 1, 5, NULL"), "leaderships", "do not follow each other"),
    (moved("3, 0, 0, NULL", "9, 1, 0, NULL"), "leaderships", "do not follow each other"),
    ("UPDATE counters SET next = -1", "counters", "a number that nobody can have reached"),
    (
        "UPDATE counters SET next = 9223372036854775807 WHERE name = 'producer_id'",
        "counters",
        "a number that nobody can have reached",
    ),
    (
        "UPDATE counters SET next = 2147483648 WHERE name = 'coordinator_epoch'",
        "counters",
        "a number that nobody can have reached",
    ),
    ("UPDATE configs SET value = 'long'", "configs", "a value that cannot be read"),
    ("UPDATE configs SET value = '1e400'", "configs", "a value that cannot be read"),
    (config("smq.durability", "nonsense"), "configs", "a value that cannot be read"),
    (config("smq.durability", " disk "), "configs", "a value that cannot be read"),
    (config("compression.type", "nonsense"), "configs", "a value that cannot be read"),
    (config("compression.zstd.level", "high"), "configs", "a value that cannot be read"),
    ("DELETE FROM counters", "counters", "not all of them"),
    ("DELETE FROM counters WHERE name = 'producer_id'", "counters", "not all of them"),
    (member("x'00'"), "group_members", "protocols that cannot be read"),
    (member("x'0000000161'"), "group_members", "protocols that cannot be read"),
    (member("x'00000001ff00000000'"), "group_members", "protocols that cannot be read"),
    (member_again("member_id, NULL"), "group_members", "a member twice"),
    (member_again("'n', instance_id"), "group_members", "a member twice"),
    (
        f"{MEMBER}; UPDATE group_members SET position = -1",
        "group_members",
        "a member in an impossible place",
    ),
    (
        f"{MEMBER}; INSERT INTO deleting_groups VALUES ('g')",
        "deleting_groups",
        "a group with members",
    ),
    (transaction("Sleeping", 1), "transactions", "a transaction in an unknown state"),
    (transaction("Empty", -2), "transactions", "an epoch that no producer gets"),
    (transaction("PrepareAbort", 2**15), "transactions", "an epoch that no producer gets"),
    (transaction("Ongoing", 2**15 - 1), "transactions", "an epoch that no producer gets"),
    (
        f"INSERT INTO groups VALUES ({letters(NAME_BYTES_MAX + 1)}, NULL, 1, NULL, NULL, NULL)",
        "groups",
        "a name that is longer than a request can say",
    ),
    (
        "INSERT INTO groups VALUES (CAST(x'ff' AS TEXT), NULL, 1, NULL, NULL, NULL)",
        "groups",
        "text that is no UTF-8",
    ),
]


def filled(path: Path) -> Path:
    """A store with something of each kind."""
    store = Store.open(path)
    store.add_topic(TOPIC, 0)
    store.access.add_rules(sorted({each for world in worlds() for each in world.rules}))
    for mechanism in (1, 2):
        store.access.put_credential(credential("häns", ScramMechanism(mechanism)))
    store.commit()
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(quota(key_of({"user": "bob"}), "producer_byte_rate", "1024.0"))
    return path


def crafted(path: Path, script: str) -> Path:
    filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA ignore_check_constraints = ON; {script}")
        connection.commit()
    return path


@pytest.mark.parametrize(("script", "table", "what"), CRAFTED)
def test_a_row_that_no_request_can_have_made_is_refused(
    tmp_path: Path, script: str, table: str, what: str
) -> None:
    path = crafted(tmp_path / "store.sqlite", script)
    said = f"the table '{table}' has .*{what}.*: somebody has changed this database"
    for look in (check_store, stored):
        with pytest.raises(StoreError, match=said):
            look(path)


def test_a_store_that_requests_have_filled_opens(tmp_path: Path) -> None:
    path = filled(tmp_path / "store.sqlite")
    check_store(path)
    assert len(stored(path).credentials) == 2


@pytest.mark.parametrize(
    "script",
    [
        rule(1, letters(STRING_BYTES_MAX)),
        rule(1, "'a' || char(10)"),  # Kafka has such rules, too.
        user("'unix'"),
        "UPDATE configs SET name = 'of.another.version'",
        "UPDATE configs SET value = '-7'",  # Refused by now, if it was not.
        config("compression.gzip.level", "0"),  # Levels had no bounds.
        config("compression.lz4.level", "0"),
        config("compression.zstd.level", "99"),
        "INSERT INTO resource_configs VALUES ('broker', '', 'of.another.version', 'x')",
        f"INSERT INTO groups VALUES ({letters(40_000)}, NULL, 1, NULL, NULL, NULL)",
        "UPDATE topics SET namespace = '', name = id; DELETE FROM partitions WHERE partition = 0",
        f"{OTHER_TOPIC(1, 'other', 'rides')}; {OTHER_PARTITION(1, 3)}",
        member_again("'n', NULL"),
        f"{MEMBER}; INSERT INTO deleting_groups VALUES ('h')",
        transaction("Empty", -1),
        transaction("Ongoing", 2**15 - 2),
        transaction("CompleteAbort", 2**15 - 1),  # Its producer was fenced.
    ],
)
def test_a_store_that_an_earlier_version_may_have_filled_opens(tmp_path: Path, script: str) -> None:
    """Also names that are replaced text, and a topic that is being deleted."""
    path = crafted(tmp_path / "store.sqlite", script)
    check_store(path)


def test_users_and_rules_have_as_much_room_as_they_are_published_in(tmp_path: Path) -> None:
    path, few = filled(tmp_path / "store.sqlite"), ACCESS_BYTES_MAX // 32_000
    with closing(sqlite3.connect(path)) as connection:
        for first, end in ((0, few), (few, few + 60)):
            for each in range(first, end):
                connection.execute(rule(1, f"{letters(29_900)} || {each}"))
            connection.commit()
            if end == few:
                check_store(path)
    with pytest.raises(StoreError, match="more than users and rules may take"):
        check_store(path)


def test_published_bytes_are_those_of_the_lines(tmp_path: Path) -> None:
    path = filled(tmp_path / "store.sqlite")
    users, rules = stored(path)
    lines = [*map(line_of, users), *map(line_of, rules)]
    with closing(sqlite3.connect(path)) as connection:
        counted = content._published_bytes(connection)
    assert counted == sum(len(each) + 1 for each in lines)


def test_the_states_of_transactions_are_known() -> None:
    [condition] = [each for _, each, what in content._IMPOSSIBLE if "unknown state" in what]
    states = {each.value for each in TransactionState} - {"Dead"}  # It is forgotten.
    assert states == {*condition.split("'")[1::2]}
