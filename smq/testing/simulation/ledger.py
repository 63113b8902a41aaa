"""What the broker has told its clients: the rules compare it with the records.

A record is *claimed* from its ack, or from a consumer's read, until a failure that its topic's
level does not survive. A record without an answer is in doubt: it may exist, once, or not.
"""

from dataclasses import dataclass, field

from smq.model.catalog import Topic

KEYS = 3
LEVELS = ("memory", "os", "disk")


class Broken(AssertionError):
    """The broker has broken a promise."""


@dataclass(eq=False)
class Incarnation:
    """A topic from its creation until a client requests its deletion.

    claims   by partition: the record at an offset
    places   by partition: the offset of a record
    moved    by partition: the offset from which the log that leads has it. A log syncs all that it
             has before another one leads, whatever the level: no failure takes what lies below
    losses   how many failures occurred that its level does not survive
    is_damaged   a disk has changed its content, so later data may look torn, or cannot read it:
                 nothing in it is claimed any more
    sent_before  values sent to an earlier topic of this name: their retries may arrive after
                 later records of the same producer
    """

    topic: Topic
    level: str
    is_dying: bool = False
    losses: int = 0
    is_damaged: bool = False
    sent_before: frozenset[bytes] = frozenset()
    claims: list[dict[int, bytes]] = field(default_factory=list)
    places: list[dict[bytes, int]] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.claims = [{} for _ in self.topic.logs]
        self.places = [{} for _ in self.topic.logs]
        self.moved = [0 for _ in self.topic.logs]

    @property
    def is_compacted(self) -> bool:
        """Whether only the last record of each key is guaranteed."""
        return self.topic.configs.get("cleanup.policy") == "compact"

    def key_of(self, value: bytes) -> bytes | None:
        """A record's key: there are few keys, so each has many records."""
        return b"key %d" % (number_of(value) % KEYS) if self.is_compacted else None

    def where(self, partition: int) -> str:
        """A partition in words."""
        return f"{self.topic.name}-{partition} ({self.level})"

    def claim(self, partition: int, offset: int, value: bytes, why: str) -> None:
        """Record that a client was told of a record at an offset. Raises Broken."""
        if self.is_dying or self.is_damaged:
            return
        where = self.where(partition)
        before = self.claims[partition].setdefault(offset, value)
        if before != value:
            raise Broken(f"{where}: offset {offset} was {said(before)}, {why} is {said(value)}")
        place = self.places[partition].setdefault(value, offset)
        if place != offset:
            raise Broken(f"{where}: {said(value)} was at {place}, {why} is at {offset}")

    def forget(self) -> None:
        """Drop the claims after a failure that the level does not survive, or after damage."""
        self.losses += 1
        for partition, claims in enumerate(self.claims):
            kept = 0 if self.is_damaged else self.moved[partition]
            for offset in [offset for offset in claims if offset >= kept]:
                del self.places[partition][claims.pop(offset)]


Part = tuple[Incarnation, int]
"""A partition of a topic."""


def number_of(value: bytes) -> int:
    """A record's number in its lane."""
    return int(value.split(b":", 2)[1])


def said(value: bytes) -> str:
    """A record in words."""
    lane, number, _ = value.split(b":", 2)
    return f"record {number.decode()} of lane {lane.decode()}"


class Commits:
    """The commits of one group and partition, each offset at most once.

    A commit replaces those that were acked before it was requested. Everything else may come in any
    order: two requests may take different routes, and one whose connection broke may arrive late.
    """

    def __init__(self) -> None:
        self.last = 0
        self.possible: set[int] = {-1}
        self._acked: set[int] = {-1}
        self._replaced: list[set[int]] = []

    def ask(self) -> tuple[int, set[int]]:
        """The next offset, and the offsets that its ack replaces."""
        self.last += 1
        self.possible.add(self.last)
        replaced = set(self._acked)
        self._replaced.append(replaced)
        return self.last, replaced

    def acked(self, offset: int, replaced: set[int]) -> None:
        """The offset, or one requested meanwhile, was acked."""
        self.possible -= replaced
        self._acked.add(offset)

    def refused(self, offset: int) -> None:
        """The offset was refused."""
        self.possible.discard(offset)

    def lose_power(self) -> None:
        """An earlier offset may return, also after a late answer: offsets are as durable as the
        topic's records."""
        self.possible |= self._acked
        for replaced in self._replaced:
            replaced.clear()


class Ledger:
    """The ledger of one simulation."""

    def __init__(self) -> None:
        self.current: dict[str, Incarnation] = {}
        self.all: list[Incarnation] = []
        self.sent: dict[str, set[bytes]] = {}  # By topic name, whichever incarnation gets it.
        self.commits: dict[tuple[str, Incarnation, int], Commits] = {}
        self.sdk_commits: dict[Part, tuple[int, int]] = {}  # Of its group: acked, requested.
        self.is_damaged = self.all_is_damaged = False
        self.acks = 0
        self.acked_ns: dict[bytes, int] = {}  # When a record's ack arrived.
        self.offered_ns: dict[bytes, int] = {}  # When somebody had a record to send.

    def created(self, topic: Topic) -> None:
        """A topic was created."""
        known = self.current.get(topic.name)
        if known is None or known.topic.id != topic.id:
            level = topic.configs.get("smq.durability", "os")
            sent = frozenset(self.sent.get(topic.name, ()))
            damaged = self.all_is_damaged
            incarnation = Incarnation(topic, level, is_damaged=damaged, sent_before=sent)
            self.current[topic.name] = incarnation
            self.all.append(incarnation)

    def moved(self, topic: Topic, partition: int, start: int) -> None:
        """Another log leads a partition from an offset on."""
        for each in self.all:
            if each.topic.id == topic.id:
                each.moved[partition] = start

    def offered(self, topic: str, values: list[bytes], now_ns: int) -> None:
        """Somebody is going to send these records to a topic."""
        self.sent.setdefault(topic, set()).update(values)
        self.offered_ns.update(dict.fromkeys(values, now_ns))

    def standing(self, name: str) -> Incarnation | None:
        """The topic of a name, if it certainly exists."""
        found = self.current.get(name)
        return None if found is None or found.is_dying else found

    def first(self, name: str) -> Incarnation | None:
        """The first topic that had this name."""
        return next((each for each in self.all if each.topic.name == name), None)

    def damaged(self) -> None:
        """A bit of a log was flipped: from now on only check that every record read was sent."""
        self.is_damaged = self.all_is_damaged = True
        for each in self.all:
            each.is_damaged = True
            each.forget()

    def lost(self, numbers: set[int]) -> None:
        """A page of a log cannot be read: from now on only check that every record that is read of
        the topics of these partitions was sent. The others lose nothing."""
        self.is_damaged = True
        for each in self.all:
            if numbers & {*each.topic.partition_numbers}:
                each.is_damaged = True
                each.forget()

    def lose_power(self) -> None:
        """Unsynced data may be lost."""
        self.lose("memory", "os")
        for (_, incarnation, _), kept in self.commits.items():
            if incarnation.level != "disk":
                kept.lose_power()

    def lose(self, *levels: str) -> None:
        """Something happened that these levels do not survive."""
        for each in self.all:
            if each.level in levels:
                each.forget()
