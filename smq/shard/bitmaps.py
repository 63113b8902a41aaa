"""Rights in kernel form (shm.kernels.log.bitmaps): where clients that may not do everything may
write and read.

    a kernel meets a partition without a bit   ─▶ Python decides, and sets it if the client may
    a rule comes or goes                       ─▶ the bits that it concerns are cleared
    a topic comes, goes or changes             ─▶ those of its partitions are cleared
    there are too many clients                 ─▶ the bitmaps of those that asked least recently go

Nothing is made before a client asks for it, so there is no step that takes long, and none to wait
for. Clients of one principal share their bitmaps, unless a rule names their address.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shm.kernels.base.words import P_NUMBER
from shm.kernels.log.bitmaps import NOBODYS, OPERATIONS, READS, SLOT_MASK, WORD_BITS, WRITES
from smq.security.access import AccessView
from smq.security.acls import WILDCARD, AclBinding, Operation, ResourceType
from smq.security.principals import EVERYONE, Peer, Principal
from smq.security.rules import Rules

if TYPE_CHECKING:
    from smq.log.log import Log
    from smq.model.catalog import Topic

BITMAPS_MAX = 256  # Rows, NOBODYS among them. With 100,000 partitions each takes 25 KB.
CHANGED_MAX = 64  # Rules that are compared with bits; after more all bits are cleared.
LOOKED_AT_MAX = 1000  # Bits, likewise: a millisecond or two. Of partitions that change, too.
_BITMAP = {Operation.WRITE: WRITES, Operation.READ: READS}
_ONE = np.uint64(1)
_Key = tuple[Principal, str]


class Leading(Protocol):
    """What bitmaps ask of their shard."""

    access: AccessView

    def topic_of(self, number: int) -> "Topic | None":
        """The topic of a partition that is led here."""


def _nobody(_row: int) -> None:
    """Nobody has a row."""


class Bitmaps:
    """The bitmaps of a shard with one log and an authorizer.

    Invariant: a bit that is set is a right by the rules that `follow` has seen, to a topic that is
    led here. NOBODYS has none.

    words      int64: what a kernel takes
    size       of a bitmap, in words
    released   called with a row that is another principal's from now on
    """

    def __init__(self, shard: Leading, log: "Log", *, allow_if_no_rule: bool) -> None:
        self._shard, self._log, self._allow_if_no_rule = shard, log, allow_if_no_rule
        self.size = -(-len(log.partitions.table) // WORD_BITS)
        self.words = np.zeros(BITMAPS_MAX * OPERATIONS * self.size, np.int64)
        self._bits = self.words.view(np.uint64).reshape(BITMAPS_MAX, OPERATIONS, self.size)
        self._rows: dict[_Key, int] = {}  # Who has asked least recently first.
        self._free = list(range(BITMAPS_MAX - 1, NOBODYS, -1))
        self._changed: list[AclBinding] = []
        self.released: Callable[[int], None] = _nobody
        shard.access.when_rule_changes = self._note

    def invariants(self) -> None:
        """Assert the class's invariant."""
        self.follow()
        authorizer = self._shard.access.authorizer
        assert authorizer is not None
        rows = {row: key for key, row in self._rows.items()}
        assert len(rows) == len(self._rows)
        assert sorted([NOBODYS, *rows, *self._free]) == list(range(BITMAPS_MAX))
        for row in range(BITMAPS_MAX):
            for operation, bitmap in _BITMAP.items():
                for slot in self._slots(row, bitmap):
                    topic, (principal, host) = self._topic_at(slot), rows[row]
                    assert topic is not None, "a bit of a partition that is gone"
                    peer = Peer(principal, "" if host == WILDCARD else host)
                    found = authorizer.decide(peer, operation, ResourceType.TOPIC, topic.name)
                    assert found.allowed, f"{rows[row]} may not {operation.name} {topic.name}"

    # --- whose they are --------------------------------------------------------------------------

    def row_of(self, peer: Peer) -> int:
        """The row of a client."""
        is_named = self._shard.access.rules.names_host(peer.host)
        key = peer.principal, peer.host if is_named else WILDCARD
        row = self._rows.pop(key, NOBODYS)
        if row == NOBODYS:
            row = self._free.pop() if self._free else self._evict(next(iter(self._rows)))
        self._rows[key] = row
        return row

    def _evict(self, key: _Key) -> int:
        row = self._rows.pop(key)
        self._bits[row] = 0
        self.released(row)
        return row

    # --- what they say ---------------------------------------------------------------------------

    def learn(self, peer: Peer, operation: Operation, codes: Iterable[int]) -> None:
        """A client has been found to have a right to the topics of partitions (log << 32 | slot;
        negative ones are not led here)."""
        bits = self._bits[self.row_of(peer), _BITMAP[operation]]
        slots = {code & SLOT_MASK for code in codes if code >= 0}  # A request may repeat them.
        for slot in slots:
            bits[slot // WORD_BITS] |= _ONE << np.uint64(slot % WORD_BITS)

    def has(self, peer: Peer, operation: Operation, codes: Iterable[int]) -> bool:
        """Whether a client is known to have a right to all of these, by the rules of now."""
        self._shard.access.refresh()
        self.follow()
        bits = self._bits[self.row_of(peer), _BITMAP[operation]]
        slots = np.fromiter(codes, np.int64) & SLOT_MASK
        found = bits[slots // WORD_BITS] >> (slots % WORD_BITS).astype(np.uint64) & _ONE
        return bool(found.all())

    def forget_partitions(self, slots: list[int]) -> None:
        """Partitions may belong to other topics now."""
        if not self._rows or not slots:
            return
        if len(slots) > LOOKED_AT_MAX:
            self._bits[:] = 0
            return
        for slot in slots:
            self._clear(slice(None), slot)

    # --- rules -----------------------------------------------------------------------------------

    def _note(self, rule: AclBinding) -> None:
        """A rule has come or gone: what it concerns is cleared before a kernel runs again."""
        if rule.pattern.resource_type is ResourceType.TOPIC and len(self._changed) <= CHANGED_MAX:
            self._changed.append(rule)

    def follow(self) -> None:
        """Clear the bits that rules concern which have changed."""
        if not self._changed:
            return
        changed, self._changed = self._changed, []
        if not self._rows:
            return
        if len(changed) > CHANGED_MAX:
            for key in list(self._rows):
                self._free.append(self._evict(key))
            return
        self._follow_few(changed)

    def _follow_few(self, changed: list[AclBinding]) -> None:
        names = {rule.entry.principal for rule in changed}
        is_for_all = self._allow_if_no_rule or str(EVERYONE) in names
        names_hosts = any(rule.entry.host != WILDCARD for rule in changed)
        rules, left = Rules(changed), LOOKED_AT_MAX
        for key, row in list(self._rows.items()):
            if not is_for_all and str(key[0]) not in names:
                continue
            left -= int(np.bitwise_count(self._bits[row]).sum())
            if names_hosts and key[1] == WILDCARD:  # Some of its clients may need their own.
                self._free.append(self._evict(key))
            elif left < 0:
                self._bits[row] = 0
            else:
                slots = {*self._slots(row, WRITES), *self._slots(row, READS)}
                self._forget_some(row, slots, rules)

    def _forget_some(self, row: int, slots: Iterable[int], rules: Rules) -> None:
        for slot in slots:
            topic = self._topic_at(slot)
            if topic is None or any(True for _ in rules.about(ResourceType.TOPIC, topic.name)):
                self._clear(row, slot)

    # --- bits ------------------------------------------------------------------------------------

    def _clear(self, rows: int | slice, slot: int) -> None:
        self._bits[rows, :, slot // WORD_BITS] &= ~(_ONE << np.uint64(slot % WORD_BITS))

    def _slots(self, row: int, bitmap: int) -> list[int]:
        """The partitions whose bits are set."""
        bits = self._bits[row, bitmap]
        used = np.flatnonzero(bits)  # Most words have no bit.
        octets = bits[used].astype("<u8", copy=False).view(np.uint8)
        found = np.flatnonzero(np.unpackbits(octets, bitorder="little"))
        slots: list[int] = (used[found // WORD_BITS] * WORD_BITS + found % WORD_BITS).tolist()
        return slots

    def _topic_at(self, slot: int) -> "Topic | None":
        return self._shard.topic_of(int(self._log.partitions.table[slot, P_NUMBER]))
