"""What the rows of a store say must be what a request can have made them say.

A file from elsewhere may say anything else, and whoever reads it believes it: a name longer than a
string of Kafka's protocol has no answer that names it, a quota that is no number ends each shard
that reads it. So a store is looked through before anything is made of it.

    text       is UTF-8; names are as long as a request can make them
    topics     have a name by Kafka's rules, all their partitions, and configs that can be read
    moves      leave each partition one leader, and each offset one leadership
    users      have a name, and keys of a mechanism that there is
    rules      are of kinds that there are, about something, and about somebody
    quotas     are numbers, of somebody
    members    are there once, and have protocols that can be read
    producers  have epochs of 16 bits, also once what is open is aborted
    counters   are all there, and leave room for the next numbers
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from smq.model.catalog import QUOTA
from smq.model.client_quotas import entity_of, entity_problem, key_of, names_of, problem_of
from smq.model.config import INT32_MAX, SETTINGS, Config
from smq.model.config_values import Value, parsed
from smq.model.errors import StoreError
from smq.model.names import NAME_CHARACTERS_MAX
from smq.model.setting import INT64_MAX
from smq.model.topic_configs import DURABILITY, TOPIC_CONFIGS
from smq.model.topic_settings import TopicSettings
from smq.security.published import ACCESS_BYTES_MAX
from smq.store.protocols import unpacked
from smq.wire.codec import STRING_BYTES_MAX

# What is no UTF-8 in a request is replaced by U+FFFD, which has three bytes: clients could make
# such names until these were refused. A member's id is a client's with a number.
NAME_BYTES_MAX = 3 * STRING_BYTES_MAX + 64
# In 32 bits are a partition's number in frames and a coordinator's epoch in markers.
_LOG_MAX = (SETTINGS["shards"].at_most or 1) - 1
# Of a producer; markers have it in 16 bits. An abort needs one more than an open transaction has.
_EPOCH_MAX = 2**15 - 1
_COUNTERS = {"partition_number", "producer_id", "coordinator_epoch", "arrival"}
# Topic configs of which a shard knows each value, or ends.
_CHOSEN = {"compression.type", DURABILITY}
_GROWS = frozenset({"value", "before", "after"})  # A list that is appended to; also what it was.

_NO_NAME = (
    "{0} IN ('', '.', '..') OR {0} GLOB '*[^a-zA-Z0-9._-]*' OR instr({0}, char(0))"
    f" OR length({{0}}) > {NAME_CHARACTERS_MAX}"
).format
_PARTITIONS = (
    "SELECT topic_id FROM partitions GROUP BY topic_id "
    "HAVING min(partition) = 0 AND max(partition) = count(*) - 1"
)
# A leadership ends where the next one of its partition begins; the last one has no end.
_GAPS = (
    "SELECT partition_number, epoch FROM (SELECT partition_number, epoch, end_offset,"
    " lead(start_offset) OVER (PARTITION BY partition_number ORDER BY epoch) AS next_start"
    " FROM leaderships) WHERE end_offset IS NOT next_start"
)
_TWICE = (
    "(group_id, {0}) IN (SELECT group_id, {0} FROM group_members WHERE {0} NOT NULL"
    " GROUP BY group_id, {0} HAVING count(*) > 1)"
).format
_IS_LONG = f"length(CAST({{}} AS BLOB)) > {STRING_BYTES_MAX}".format
# A row is impossible for which the condition holds: tables, conditions, and what it is.
_IMPOSSIBLE = (
    (
        "topics",
        "length(CAST(id AS BLOB)) != 32 OR id GLOB '*[^0-9a-f]*' OR instr(id, char(0))",
        "a topic with an impossible id",
    ),
    (
        "topics",
        f"namespace != '' AND ({_NO_NAME('namespace')} OR {_NO_NAME('name')})",
        "a name that no topic can have",
    ),
    (
        "topics",
        (
            "namespace != '' AND name IN"
            " (SELECT name FROM topics WHERE namespace != '' GROUP BY name HAVING count(*) > 1)"
        ),
        "two topics of one name",
    ),
    (
        "topics",
        f"namespace != '' AND id NOT IN ({_PARTITIONS})",
        "a topic that lacks some of its partitions",
    ),
    (
        "partitions",
        f"number NOT BETWEEN 1 AND {INT32_MAX} OR log NOT BETWEEN 0 AND {_LOG_MAX}",
        "a partition in an impossible place",
    ),
    (
        "partitions",
        (
            f"target NOT BETWEEN 0 AND {_LOG_MAX} OR target = log"
            " OR target NOT NULL AND attempt = 0"
            f" OR epoch NOT BETWEEN 0 AND {INT32_MAX} OR attempt NOT BETWEEN 0 AND {INT64_MAX // 2}"
        ),
        "a move that nobody can have begun",
    ),
    (
        "partitions",
        (
            "attempt > 0 AND NOT EXISTS (SELECT 1 FROM leaderships WHERE partition_number = number"
            " AND end_offset IS NULL AND leaderships.log = partitions.log"
            " AND leaderships.epoch <= partitions.epoch)"
        ),
        "a partition that nobody leads",
    ),
    (
        "leaderships",
        (
            f"log NOT BETWEEN 0 AND {_LOG_MAX} OR epoch NOT BETWEEN 0 AND {INT32_MAX}"
            f" OR start_offset NOT BETWEEN 0 AND {INT64_MAX // 2} OR end_offset < start_offset"
        ),
        "a leadership that no log can have had",
    ),
    (
        "leaderships",
        f"(partition_number, epoch) IN ({_GAPS})",
        "leaderships that do not follow each other",
    ),
    (
        "counters",
        (
            f"next NOT BETWEEN 0 AND {INT64_MAX // 2}"
            f" OR name IN ('partition_number', 'coordinator_epoch') AND next > {INT32_MAX}"
        ),
        "a number that nobody can have reached",
    ),
    (
        "resource_configs",
        " OR ".join(map(_IS_LONG, ("resource", "name", "value"))),
        "a setting that is too long",
    ),
    (
        "scram_credentials",
        f"user = '' OR user GLOB 'unix/*' OR {_IS_LONG('user')}",
        "a name that no user can have",
    ),
    (
        "scram_credentials",
        "mechanism NOT IN (1, 2) OR iterations NOT BETWEEN 4096 AND 16384",
        "keys that no password makes",
    ),
    (
        "acls",
        " OR ".join(map(_IS_LONG, ("name", "principal", "host"))),
        "a rule with a name that is too long",
    ),
    (
        "acls",
        (
            "resource_type NOT BETWEEN 2 AND 7 OR pattern_type NOT IN (3, 4)"
            " OR operation NOT BETWEEN 2 AND 15 OR permission NOT IN (2, 3)"
        ),
        "a rule of a kind that there is not",
    ),
    (
        "acls",
        "name = '' OR resource_type = 4 AND name != 'kafka-cluster' OR NOT instr(principal, ':')",
        "a rule that is about nothing or nobody",
    ),
    (
        "transactions",
        (
            "state NOT IN ('Empty', 'Ongoing', 'PrepareCommit', 'PrepareAbort',"
            " 'CompleteCommit', 'CompleteAbort')"
        ),
        "a transaction in an unknown state",
    ),
    (
        "transactions",
        f"epoch NOT BETWEEN -1 AND {_EPOCH_MAX} OR state = 'Ongoing' AND epoch = {_EPOCH_MAX}",
        "an epoch that no producer gets",
    ),
    (
        "group_members",
        f"{_TWICE('member_id')} OR {_TWICE('instance_id')}",
        "a member twice",
    ),
    ("group_members", "position < 0", "a member in an impossible place"),
    (
        "deleting_groups",
        "group_id IN (SELECT group_id FROM group_members)",
        "a group with members, which is not deleted",
    ),
)

_PROTOCOLS = "SELECT protocols FROM group_members"
# How long their lines are at most: JSON may write six letters for one.
_LINES_AT_MOST = (
    (
        "SELECT sum(60 + 6 * (length(CAST(name AS BLOB)) + length(CAST(principal AS BLOB))"
        " + length(CAST(host AS BLOB)))) FROM acls"
    ),
    (
        "SELECT sum(60 + 6 * length(CAST(user AS BLOB))"
        " + 2 * (length(salt) + length(stored_key) + length(server_key))) FROM scram_credentials"
    ),
)


def check_content(connection: sqlite3.Connection, path: Path) -> None:
    """Raises StoreError for a row that no request can have made, and sqlite3.Error.

    It reads all text, of checked schema and types: half a second for a million segments.
    """
    for table, what in _problems(connection):
        sentence = f"the table {table!r} has {what}: somebody has changed this database"
        raise StoreError(str(path), sentence)


def _problems(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Tables, and what they have that they cannot have."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    for (table,) in tables.fetchall():
        if (what := _text_problem(connection, table)) is not None:
            yield table, what
    for table, condition, what in _IMPOSSIBLE:
        find = f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1"  # noqa: S608  (ours)
        if connection.execute(find).fetchone():
            yield table, what
    yield from _unreadable(connection)
    if not {name for (name,) in connection.execute("SELECT name FROM counters")} >= _COUNTERS:
        yield "counters", "not all of them"
    if _has_too_much_access(connection):
        yield "acls", f"more than users and rules may take, {ACCESS_BYTES_MAX} bytes"


def _unreadable(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Tables with values that say nothing to those who read them."""
    if any(map(_is_wrong, _configs_of_topics(connection))):
        yield "configs", "a value that cannot be read"
    quotas = "SELECT resource, name, value FROM resource_configs WHERE resource_type = ?"
    if not all(_is_quota(*each) for each in connection.execute(quotas, (QUOTA,))):
        yield "resource_configs", "what is no quota of a client"
    if not all(_is_unpacked(each) for (each,) in connection.execute(_PROTOCOLS)):
        yield "group_members", "protocols that cannot be read"


def _text_problem(connection: sqlite3.Connection, table: str) -> str | None:
    """What is wrong with the text of a table."""
    columns = [
        name
        for name, kind in connection.execute(
            "SELECT name, lower(type) FROM pragma_table_info(?)", (table,)
        )
        if kind == "text"
    ]
    if not columns:
        return None
    names = [each for each in columns if each not in _GROWS]
    is_long = " OR ".join(f"length(CAST({name} AS BLOB)) > {NAME_BYTES_MAX}" for name in names)
    find = f"SELECT 1 FROM {table} WHERE {is_long} LIMIT 1"  # noqa: S608  (names of ours)
    if connection.execute(find).fetchone():
        return "a name that is longer than a request can say"
    try:
        for _ in connection.execute(f"SELECT {', '.join(columns)} FROM {table}"):  # noqa: S608
            pass
    except sqlite3.OperationalError as reason:
        if getattr(reason, "sqlite_errorcode", None) is not None:
            raise
        return "text that is no UTF-8"  # Python says so, and not SQLite.
    return None


def _configs_of_topics(connection: sqlite3.Connection) -> Iterator[dict[str, str]]:
    configs = defaultdict[str, dict[str, str]](dict)
    for topic_id, name, value in connection.execute("SELECT topic_id, name, value FROM configs"):
        configs[topic_id][name] = value
    yield from configs.values()


def _is_wrong(configs: dict[str, str]) -> bool:
    """Whether nobody can read a topic's configs. Their ranges may have been others."""
    try:
        for name in configs.keys() & TOPIC_CONFIGS.keys():
            value = parsed(TOPIC_CONFIGS[name].type, configs[name])
            if name in _CHOSEN and TOPIC_CONFIGS[name].rule(_as_read(value, configs[name])):
                return True
        TopicSettings.of(configs, Config())
    except (ValueError, LookupError, OverflowError):
        return True
    return False


def _as_read(value: Value, text: str) -> Value:
    """A shard takes a word as it stands, with its spaces."""
    return text if isinstance(value, str) else value


def _is_unpacked(protocols: bytes) -> bool:
    try:
        unpacked(protocols)
    except ValueError:
        return False
    return True


def _is_quota(resource: str, name: str, value: str) -> bool:
    try:
        entity = entity_of(resource)
        is_known = key_of(entity) == resource and not entity_problem(entity)
        return is_known and name in names_of(entity) and not problem_of(name, float(value))
    except (ValueError, TypeError, RecursionError):  # It is no entity, or no number.
        return False


def _has_too_much_access(connection: sqlite3.Connection) -> bool:
    """Whether users and rules have no room where they are published."""
    most = sum(connection.execute(each).fetchone()[0] or 0 for each in _LINES_AT_MOST)
    return most > ACCESS_BYTES_MAX and _published_bytes(connection) > ACCESS_BYTES_MAX


def _published_bytes(connection: sqlite3.Connection) -> int:
    """As smq.security.published has them."""
    rules = connection.execute(
        "SELECT resource_type, name, pattern_type, principal, host, operation, permission FROM acls"
    )
    users = connection.execute(
        "SELECT user, mechanism, hex(salt), hex(stored_key), hex(server_key), iterations "
        "FROM scram_credentials"
    )
    lines = chain((("rule", *row) for row in rules), (("user", *row) for row in users))
    return sum(len(json.dumps(line)) + len("\n") for line in lines)
