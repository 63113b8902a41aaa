"""What a producer knows of the topics it sends to, and when it is time to ask again."""

from smq.client.producing.links import ProducerTopic

LOOK_MS = 1000  # We look for topics that were asked about long ago once a second.
GONE_MS = 3000  # A topic that is not there for so long has been deleted; else it has just come.


class Topic:
    """A topic that is sent to. Records without key stick to a partition for a parcel."""

    __slots__ = ("facts", "keyless", "learnt_ms", "missing_since_ms")

    def __init__(self, facts: ProducerTopic, keyless: int) -> None:
        self.facts = facts
        self.learnt_ms = 0
        self.keyless = keyless % len(facts.leaders)
        self.missing_since_ms = 0

    def turn(self) -> None:
        """Have the next records without key go to the next partition."""
        self.keyless = (self.keyless + 1) % len(self.facts.leaders)


class Topics:
    """Those that are `known`, by name; `look_ms` is when to look again which are out of date."""

    def __init__(self, metadata_max_age_ms: int, first_partition: int) -> None:
        self.known: dict[str, Topic] = {}
        self.look_ms = 0
        self._max_age_ms = metadata_max_age_ms
        self._first_partition = first_partition

    def learn(self, name: str, facts: ProducerTopic, now_ms: int) -> None:
        """What the cluster says of one."""
        known = self.known.setdefault(name, Topic(facts, self._first_partition))
        known.facts, known.learnt_ms, known.missing_since_ms = facts, now_ms, 0

    def aged(self, now_ms: int) -> set[str]:
        """Those to ask about because that was long ago."""
        if now_ms < self.look_ms:
            return set()
        self.look_ms = now_ms + LOOK_MS
        oldest_ms = now_ms - self._max_age_ms
        return {name for name, each in self.known.items() if each.learnt_ms <= oldest_ms}

    def is_gone(self, name: str, now_ms: int) -> bool:
        """The cluster says that there is no such topic: whether to believe it."""
        known = self.known.get(name)
        if known is None:
            return True
        known.missing_since_ms = known.missing_since_ms or now_ms
        return now_ms - known.missing_since_ms >= GONE_MS
