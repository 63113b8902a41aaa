"""What clients were told, and so may rely on: the rules compare it with what is there.

A record is *claimed* from the moment its ack has come, or a consumer has seen it, until something
happens that its topic's level does not survive. What was sent and not answered is in doubt: it may
be there, once, or not.
"""

from dataclasses import dataclass, field

from smq.model.catalog import Topic

LEVELS = ("memory", "os", "disk")


class Broken(AssertionError):
    """The broker has broken a promise."""


@dataclass(eq=False)
class Incarnation:
    """A topic from its creation until somebody asks for its deletion.

    claims   by partition: the record at an offset
    places   by partition: the offset of a record
    losses   how often something has happened that its level does not survive
    """

    topic: Topic
    level: str
    is_dying: bool = False
    losses: int = 0
    claims: list[dict[int, bytes]] = field(default_factory=list)
    places: list[dict[bytes, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.claims = [{} for _ in self.topic.logs]
        self.places = [{} for _ in self.topic.logs]

    def claim(self, partition: int, offset: int, value: bytes, why: str) -> None:
        """Somebody was told that this record stands there. Raises Broken."""
        if self.is_dying:
            return
        where = f"{self.topic.name}-{partition} ({self.level})"
        before = self.claims[partition].setdefault(offset, value)
        if before != value:
            raise Broken(f"{where}: offset {offset} was {said(before)}, {why} is {said(value)}")
        place = self.places[partition].setdefault(value, offset)
        if place != offset:
            raise Broken(f"{where}: {said(value)} was at {place}, {why} is at {offset}")

    def forget(self) -> None:
        """Something has happened that the level does not survive."""
        self.losses += 1
        for each in (*self.claims, *self.places):
            each.clear()


def said(value: bytes) -> str:
    """A record in words."""
    lane, number, _ = value.split(b":", 2)
    return f"record {number.decode()} of lane {lane.decode()}"


@dataclass
class Commits:
    """Of one group and partition: offsets that were asked for; each only once."""

    acked: int = -1
    in_doubt: set[int] = field(default_factory=set)
    last: int = 0


class Ledger:
    """Of one simulation."""

    def __init__(self) -> None:
        self.current: dict[str, Incarnation] = {}
        self.all: list[Incarnation] = []
        self.sent: dict[str, set[bytes]] = {}  # By topic's name: whichever incarnation gets it.
        self.commits: dict[tuple[str, Incarnation, int], Commits] = {}
        self.is_damaged = False  # A disk has changed what it had: some records may be gone.
        self.acks = self.fetched = 0

    def created(self, topic: Topic) -> None:
        """There is such a topic now."""
        known = self.current.get(topic.name)
        if known is None or known.topic.id != topic.id:
            level = topic.configs.get("smq.durability", "os")
            self.current[topic.name] = Incarnation(topic, level)
            self.all.append(self.current[topic.name])

    def standing(self, name: str) -> Incarnation | None:
        """The topic of a name, if there certainly is one."""
        found = self.current.get(name)
        return None if found is None or found.is_dying else found

    def lose(self, *levels: str) -> None:
        """Something has happened that these levels do not survive."""
        for each in self.all:
            if each.level in levels:
                each.forget()
