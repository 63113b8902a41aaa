"""Fetch sessions (KIP-227): the partitions that a client reads, and what it was told last.

A fetch in a session names only changed partitions, and its answer holds only partitions with news.
A session is a table with one row per partition; a fetch compares whole columns with the logs'
tables.

    KEY         topic << 32 | partition; the rows ascend by it
    CODE        log << 32 | slot; -1: the partition is not read here, which is news each time;
                -2: to be looked up
    EPOCH, OFFSET, LAST_EPOCH, BYTES_MAX    as the client asked last
    SEEN_HIGH, SEEN_START                   as last told; -1: never, or an error
    TURN        ascends in the order in which the partitions are answered

An answered partition moves to the end of that order. Eviction is Kafka's (FetchSessionCache): a
session unused for EVICTION_MS yields to any other, one older than that to a larger one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

import numpy as np

from shm.kernels.base.words import (
    P_EPOCH,
    P_HIGH_WATERMARK,
    P_LAST_STABLE,
    P_LOG_END,
    P_LOG_START,
)
from smq.model.catalog import Catalog, InternalPartition, Topic
from smq.model.errors import ErrorCode
from smq.security.access import AccessView
from smq.security.acls import Operation
from smq.security.principals import ANONYMOUS, Principal
from smq.security.rights import Rights

if TYPE_CHECKING:
    from smq.log.log import Log
    from smq.shard.led import Led

SLOTS_MAX = 1000  # Kafka's max.incremental.fetch.session.cache.slots.
EVICTION_MS = 120_000  # Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS.
SESSION_ROWS_MAX = 10_000  # As many as one request may hold: looking them up takes some ms.
ROWS_MAX = 200_000  # In all sessions of a shard: 14 MB, and the topics' names.
NAME_LENGTH_MAX = 249  # No topic has a longer name.
ANSWERED_MAX = 500  # Partitions of one answer; the others follow in the next.
FOLLOWED_MAX = 200  # Topics whose rights are looked at in a step, once rules have changed.
ID_MAX = EPOCH_MAX = 2**31 - 1

KEY, CODE, EPOCH, OFFSET, LAST_EPOCH, BYTES_MAX, SEEN_HIGH, SEEN_START, TURN = range(9)
COLUMNS = 9
_ASKED = np.array([EPOCH, OFFSET, LAST_EPOCH, BYTES_MAX])
_LOW = 2**32 - 1
_SIGN = 2**31
_UNFOUND = -2
_EMPTY = -3  # Of an internal topic.
_FIRST_ID_FACTOR = 2654435761  # Knuth's multiplier: starts in the same second get distant ids.


TopicKey = str | UUID
"""A name, or an id."""


class Serving(Protocol):
    """What a session asks of the shard that serves it."""

    logs: dict[int, "Log"]
    catalog: Catalog
    catalog_version: int
    access: AccessView

    def find(self, topic: Topic, index: int) -> "Led | InternalPartition | ErrorCode":
        """The partition `index` of a topic, or why it is not served."""
        ...


def hashed(topic: TopicKey) -> str | bytes:
    """What stands for a topic in a dict of topics that a client names.

    A client can choose ids of one hash: a UUID's is its number modulo 2**61 - 1. The hash of text
    and bytes has this process's secret.
    """
    return topic.bytes if isinstance(topic, UUID) else topic


class Asked(NamedTuple):
    """A partition as a client asks for it."""

    topic: TopicKey
    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    bytes_max: int


class Told(NamedTuple):
    """A partition as it was answered."""

    topic: TopicKey
    partition: int
    high_watermark: int  # -1: an error; the next answer reports it again.
    log_start: int


class LogRows(NamedTuple):
    """The partitions of one log: their rows here and in the log's table."""

    log: int
    mine: np.ndarray
    slots: np.ndarray


@dataclass(slots=True)
class FetchSession:
    """One client's session. `epoch` is that of its next request; nobody but `owner` has it.

    access_version  of the rules by which all of its topics have been looked at …
    host            … for a client from there
    """

    has_ids: bool
    owner: Principal = ANONYMOUS
    access_version: int = 0
    host: str = ""
    id: int = 0  # None yet.
    created_ms: int = 0
    used_ms: int = 0
    epoch: int = 1
    rows: np.ndarray = field(default_factory=lambda: np.zeros((COLUMNS, 0), np.int64))
    _topics: dict[str | bytes, int] = field(default_factory=dict)  # By `hashed` keys.
    _keys: list[TopicKey] = field(default_factory=list)  # By the numbers in _topics.
    _turn: int = 0
    _catalog_version: int = -1
    _following: int = 0  # By these rules the first …
    _followed_count: int = 0  # … of its topics have been looked at.
    _places: list[LogRows] | None = None  # None: the rows have changed.

    def __len__(self) -> int:
        return len(self.rows[KEY])

    def invariants(self) -> None:
        """Raise AssertionError when the table is not as drawn above."""
        assert (np.diff(self.rows[KEY]) > 0).all(), "each partition once, in order"
        assert len(np.unique(self.rows[TURN])) == len(self), "each has a turn of its own"
        assert len(self) <= SESSION_ROWS_MAX
        assert len(self._keys) <= 2 * len(self) + 1
        assert all(self._topics[hashed(key)] == number for number, key in enumerate(self._keys))

    def update(self, asked: Iterable[Asked]) -> None:
        """Set what the client asks for from now on. If a partition comes twice, the last one
        counts."""
        by_key = {self._key(each.topic, each.partition): each[2:] for each in asked}
        if not by_key:
            return
        keys = np.fromiter(by_key, np.int64, len(by_key))
        values = np.array(list(by_key.values()), np.int64).T
        at = np.searchsorted(self.rows[KEY], keys)
        known = np.zeros(len(keys), bool)
        inside = at < len(self)
        known[inside] = self.rows[KEY, at[inside]] == keys[inside]
        self.rows[_ASKED[:, None], at[known]] = values[:, known]
        if not known.all():
            self._add(keys[~known], values[:, ~known])

    def _add(self, keys: np.ndarray, values: np.ndarray) -> None:
        new = np.full((COLUMNS, len(keys)), -1, np.int64)
        new[KEY], new[CODE], new[_ASKED] = keys, _UNFOUND, values
        new[TURN] = self._take_turns(len(keys))
        new = new[:, np.argsort(keys)]
        self.rows = np.insert(self.rows, np.searchsorted(self.rows[KEY], new[KEY]), new, axis=1)
        self._places = None

    def forget(self, forgotten: Iterable[tuple[TopicKey, Sequence[int]]]) -> None:
        """Remove these partitions."""
        keys = [
            number << 32 | index & _LOW
            for topic, partitions in forgotten
            if (number := self._topics.get(hashed(topic))) is not None
            for index in partitions
        ]
        gone = np.isin(self.rows[KEY], np.array(keys, np.int64)) if keys else np.zeros(0, bool)
        if gone.any():
            self.rows = np.ascontiguousarray(self.rows[:, ~gone])
            self._places = None
            self._forget_topics()

    def _forget_topics(self) -> None:
        """Renumber the topics when half of them have no partition here."""
        numbers = np.unique(self.rows[KEY] >> 32)
        if len(self._keys) <= 2 * len(numbers):
            return
        self._keys = [self._keys[number] for number in numbers.tolist()]
        self._topics = {hashed(key): number for number, key in enumerate(self._keys)}
        self._followed_count = 0
        anew = np.searchsorted(numbers, self.rows[KEY] >> 32)
        self.rows[KEY] = anew << 32 | self.rows[KEY] & _LOW

    def told(self, answers: Iterable[Told]) -> None:
        """Record what the client was told; these partitions come last from now on."""
        by_key = {self._key(each.topic, each.partition): each[2:] for each in answers}
        if not by_key:
            return
        keys = np.fromiter(by_key, np.int64, len(by_key))
        at = np.searchsorted(self.rows[KEY], keys)
        assert (self.rows[KEY, at] == keys).all(), "only partitions of the session are answered"
        self.rows[SEEN_HIGH, at], self.rows[SEEN_START, at] = np.array(list(by_key.values())).T
        self.rows[TURN, at] = self._take_turns(len(keys))

    def knows(self, told: Told) -> bool:
        """Whether the client has received exactly this."""
        at = np.searchsorted(self.rows[KEY], self._key(told.topic, told.partition))
        seen = self.rows[[SEEN_HIGH, SEEN_START], at].tolist()
        return bool(seen == [told.high_watermark, told.log_start])

    def news(
        self, shard: Serving, *, is_committed: bool, count_max: int | None = None
    ) -> list[Asked]:
        """The partitions that may have news, in turn order; ANSWERED_MAX or so many at most."""
        places, rows = self._find(shard), self.rows
        is_empty = (rows[CODE] == _EMPTY) & (rows[OFFSET] == 0)
        has_news = ~is_empty & ((rows[CODE] < 0) | (rows[LAST_EPOCH] >= 0))
        for number, mine, slots in places:
            table = shard.logs[number].partitions.table
            asked = rows if len(mine) == len(self) else rows[:, mine]
            high, start = table[slots, P_HIGH_WATERMARK], table[slots, P_LOG_START]
            limit = table[slots, P_LAST_STABLE] if is_committed else high
            offset, epoch = asked[OFFSET], asked[EPOCH]
            is_quiet = (high == asked[SEEN_HIGH]) & (start == asked[SEEN_START])
            is_quiet &= (limit <= offset) & (offset <= table[slots, P_LOG_END]) & (start <= offset)
            is_quiet &= (epoch < 0) | (epoch == table[slots, P_EPOCH])
            has_news[mine] |= ~is_quiet
        [found] = np.nonzero(has_news)
        if not len(found):
            return []
        found = found[np.argsort(rows[TURN, found])][: count_max or ANSWERED_MAX]
        return [self._asked(row) for row in rows[:, found].T.tolist()]

    def follow_rights(self, shard: Serving, rights: Rights) -> bool:
        """Since rights have changed, or the client comes from elsewhere: what may not be read any
        more is news. Looks at some topics; returns whether no others are left."""
        version = shard.access.refresh()
        if rights.peer.host != self.host:
            self.host, self.access_version, self._following = rights.peer.host, -1, -1
        if rights.is_unlimited or version == self.access_version:
            return True
        if version != self._following:
            self._following, self._followed_count = version, 0
        first, end = self._followed_count, self._followed_count + FOLLOWED_MAX
        names = [_name_of(key, shard) for key in self._keys[first:end]]
        known = [number for number, name in enumerate(names, first) if name is not None]
        allowed = rights.topics(Operation.READ, [name for name in names if name is not None])
        refused = [number for number, may in zip(known, allowed, strict=True) if not may]
        self.rows[SEEN_HIGH, np.isin(self.rows[KEY] >> 32, refused)] = -1
        self._followed_count = end
        if end < len(self._keys):
            return False
        self.access_version = version
        return True

    def codes(self) -> np.ndarray:
        """log << 32 | slot of all partitions that are read here, ascending."""
        return np.unique(self.rows[CODE][self.rows[CODE] >= 0])

    def _find(self, shard: Serving) -> list[LogRows]:
        """Look the partitions up in the current catalog."""
        if self._catalog_version != shard.catalog_version:
            self._catalog_version, self._places = shard.catalog_version, None
            self.rows[CODE] = _UNFOUND
        if self._places is not None:
            return self._places
        find = shard.catalog.find_by_id if self.has_ids else shard.catalog.find
        [unfound] = np.nonzero(self.rows[CODE] == _UNFOUND)
        self.rows[CODE, unfound] = [
            _code(shard, find(self._keys[key >> 32]), _signed(key & _LOW))
            for key in self.rows[KEY, unfound].tolist()
        ]
        self._places = []
        for number in shard.logs:
            [mine] = np.nonzero(self.rows[CODE] >> 32 == number)
            if len(mine):
                self._places.append(LogRows(number, mine, self.rows[CODE, mine] & _LOW))
        return self._places

    def _asked(self, row: list[int]) -> Asked:
        return Asked(
            self._keys[row[KEY] >> 32],
            _signed(row[KEY] & _LOW),
            *(row[column] for column in _ASKED),
        )

    def _key(self, topic: TopicKey, partition: int) -> int:
        key = hashed(topic)
        number = self._topics.get(key)
        if number is None:
            number = self._topics[key] = len(self._keys)
            self._keys.append(topic)
        return number << 32 | partition & _LOW

    def _take_turns(self, count: int) -> np.ndarray:
        self._turn += count
        return np.arange(self._turn - count, self._turn)


def _name_of(key: TopicKey, shard: Serving) -> str | None:
    """The name by which rules know a topic; None: nobody knows its id."""
    if isinstance(key, str):
        return key
    topic = shard.catalog.find_by_id(key)
    return None if topic is None else topic.name


def _signed(low: int) -> int:
    return (low ^ _SIGN) - _SIGN


def _code(shard: Serving, topic: Topic | None, index: int) -> int:
    led = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else shard.find(topic, index)
    if isinstance(led, ErrorCode):
        return -1
    if isinstance(led, InternalPartition):
        return _EMPTY
    return led.code


class FetchSessions:
    """All sessions of a shard. Invariant: they stay within the limits above."""

    def __init__(self) -> None:
        self._sessions: dict[int, FetchSession] = {}  # Least recently used first.
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def invariants(self) -> None:
        """Raise AssertionError when there are too many."""
        assert len(self) <= SLOTS_MAX
        assert self._row_count() <= ROWS_MAX
        for session in self._sessions.values():
            session.invariants()

    def add(self, session: FetchSession, now_ms: int) -> int:
        """Keep a new session; returns its id, or 0 if there is no room."""
        size = len(session)
        is_full = len(self) >= SLOTS_MAX or self._row_count() + size > ROWS_MAX
        if not 0 < size <= SESSION_ROWS_MAX or (is_full and not self._evict(size, now_ms)):
            return 0
        if self._row_count() + size > ROWS_MAX:
            return 0
        session.id, session.created_ms, session.used_ms = self._new_id(now_ms), now_ms, now_ms
        self._sessions[session.id] = session
        return session.id

    def enter(
        self, id_: int, epoch: int, now_ms: int, *, has_ids: bool, owner: Principal = ANONYMOUS
    ) -> FetchSession | ErrorCode:
        """The session of a request that continues it; its epoch goes up."""
        session = self._sessions.get(id_)
        if session is None or session.owner != owner:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.has_ids != has_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = epoch + 1 if epoch < EPOCH_MAX else 1
        session.used_ms = now_ms
        self._sessions[id_] = self._sessions.pop(id_)
        return session

    def has_room(self, session: FetchSession) -> bool:
        """Whether a session that has grown may stay."""
        return len(session) <= SESSION_ROWS_MAX and self._row_count() <= ROWS_MAX

    def leave(self, id_: int, owner: Principal) -> None:
        """Forget a session that its owner has named."""
        session = self._sessions.get(id_)
        if session is not None and session.owner == owner:
            self.end(id_)

    def end(self, id_: int) -> None:
        """Forget a session, if there is one."""
        self._sessions.pop(id_, None)

    def _evict(self, size: int, now_ms: int) -> bool:
        """Evict the longest unused session, or a smaller one that is old enough."""
        first = next(iter(self._sessions.values()))
        if now_ms - first.used_ms > EVICTION_MS:
            self.end(first.id)
            return True
        old = [each for each in self._sessions.values() if now_ms - each.created_ms > EVICTION_MS]
        smallest = min(old, key=len, default=None)
        if smallest is None or len(smallest) >= size:
            return False
        self.end(smallest.id)
        return True

    def _row_count(self) -> int:
        return sum(map(len, self._sessions.values()))

    def _new_id(self, now_ms: int) -> int:
        """An id that no client of an earlier shard still uses."""
        if not self._last_id:
            self._last_id = now_ms * _FIRST_ID_FACTOR % ID_MAX
        self._last_id = self._last_id % ID_MAX + 1
        while self._last_id in self._sessions:
            self._last_id = self._last_id % ID_MAX + 1
        return self._last_id
