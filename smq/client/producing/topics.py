"""The topics that a producer sends to, and when to ask the cluster about them again."""

from smq.client.producing.channel.links import ProducerTopic

AGE_CHECK_MS = 1000  # How often to look for topics whose metadata is old.
GONE_MS = 3000  # A topic missing for this long has been deleted; else it has just been created.


class SentTopic:
    """A topic to send to. Records without key all go to one partition, until it rotates."""

    __slots__ = ("facts", "keyless", "learnt_ms", "missing_since_ms")

    def __init__(self, facts: ProducerTopic, keyless: int) -> None:
        self.facts = facts
        self.learnt_ms = 0
        self.keyless = keyless % len(facts.leaders)
        self.missing_since_ms = 0

    @property
    def partition_count(self) -> int:
        """How many partitions it has."""
        return len(self.facts.leaders)

    def rotate_keyless(self) -> None:
        """Send the next records without key to the next partition."""
        self.keyless = (self.keyless + 1) % len(self.facts.leaders)


class SentTopics:
    """The topics that the producer has sent to, by name."""

    def __init__(self, metadata_max_age_ms: int, first_partition: int) -> None:
        self._known: dict[str, SentTopic] = {}
        # By name: a topic that may be unknown, and one that is known. The dict's own methods save a
        # call.
        self.find, self.get = self._known.get, self._known.__getitem__
        self._check_at_ms = 0  # When to look again which are out of date.
        self._max_age_ms = metadata_max_age_ms
        self._first_partition = first_partition

    def learn(self, name: str, facts: ProducerTopic, now_ms: int) -> None:
        """Take a topic's metadata."""
        known = self._known.setdefault(name, SentTopic(facts, self._first_partition))
        known.facts, known.learnt_ms, known.missing_since_ms = facts, now_ms, 0

    def postpone(self, name: str, now_ms: int) -> None:
        """Its metadata could not be refreshed; what is known of it holds until it is old again."""
        if (known := self._known.get(name)) is not None:
            known.learnt_ms = now_ms

    def drop(self, name: str) -> None:
        """Forget a deleted topic."""
        self._known.pop(name, None)

    def is_check_due(self, now_ms: int) -> bool:
        """Whether `aged` has not been asked for long."""
        return now_ms >= self._check_at_ms

    def aged(self, now_ms: int) -> set[str]:
        """The topics whose metadata is old."""
        if now_ms < self._check_at_ms:
            return set()
        self._check_at_ms = now_ms + AGE_CHECK_MS
        oldest_ms = now_ms - self._max_age_ms
        return {name for name, each in self._known.items() if each.learnt_ms <= oldest_ms}

    def is_gone(self, name: str, now_ms: int) -> bool:
        """The cluster reports an unknown topic: returns whether it has been deleted."""
        known = self._known.get(name)
        if known is None:
            return True
        known.missing_since_ms = known.missing_since_ms or now_ms
        return now_ms - known.missing_since_ms >= GONE_MS
