"""What the broker has told about users and rights: who is surely let in, and may surely do what.

A thing that changes, a rule or a password, is *sure* while no change of it is under way. A request
for a change whose answer was lost may still take effect, until everybody who could have it had time
for it.
"""

from typing import Generic, NamedTuple, TypeVar

from smq.security.acls import AclBinding, Operation, Permission
from smq.testing.simulation.people import (
    ALL_GUESTS,
    GUARDED,
    GUARDED_BY,
    GUESTS,
    TELLER,
    TELLER_WRITES,
    TELLERS_TOPICS,
    Identity,
    prefixed,
    rule,
    topic,
)

T = TypeVar("T")
DELETED = -1  # Instead of a password's version.


class Changing(Generic[T]):
    """A thing as it was answered last.

    begun     counts the requests for changes
    is_busy   somebody asks for a change until it is answered
    """

    def __init__(self, value: T) -> None:
        self.value, self.begun, self.is_busy = value, 0, False
        self._open = 0
        self._lost: dict[T, int] = {}

    def begin(self) -> None:
        """A change is asked for."""
        self.begun += 1
        self._open += 1
        self.is_busy = True

    def answered(self, value: T) -> None:
        """It is answered, and so has happened."""
        self._open -= 1
        self.value, self.is_busy = value, False

    def lost(self, value: T, now_ns: int) -> None:
        """There is no answer: it may happen for a while."""
        self._open -= 1
        self._lost[value] = now_ns

    def is_sure(self, quiet_ns: int) -> bool:
        """Whether it is as it was answered; what was lost before `quiet_ns` cannot happen."""
        others = (at for value, at in self._lost.items() if value != self.value)
        return not self._open and all(at < quiet_ns for at in others)


class SimRight(NamedTuple):
    """What somebody may do with a topic."""

    identity: Identity
    operation: Operation
    topic: str


TELLERS_RIGHT = SimRight(TELLER, Operation.WRITE, TELLERS_TOPICS)


class Standing(NamedTuple):
    """Whether a right is surely there, or surely not; and how often it was touched until now."""

    is_allowed: bool
    is_refused: bool
    begun: int


def changing_rules() -> list[AclBinding]:
    """The rules that come and go, in a fixed order."""
    found = [TELLER_WRITES]
    for each in ALL_GUESTS:
        for operation in (Operation.READ, Operation.WRITE):
            found += [rule(each, operation, topic(name)) for name in GUARDED]
            found.append(rule(each, operation, prefixed(GUARDED_BY)))
            found += [rule(each, operation, topic(name), Permission.DENY) for name in GUARDED[:1]]
    return found


class Permits:
    """All rules and passwords of guests, and of the teller."""

    def __init__(self) -> None:
        self.rules = {each: Changing(each is TELLER_WRITES) for each in changing_rules()}
        self.order = list(self.rules)
        self.passwords: dict[str, Changing[int]] = {each.name: Changing(0) for each in GUESTS}
        self.newest = dict.fromkeys(self.passwords, 0)
        self._refused_since: dict[SimRight, int] = {}
        self.rights = [
            SimRight(each, operation, name)
            for each in ALL_GUESTS
            for operation in (Operation.READ, Operation.WRITE)
            for name in GUARDED
        ]
        self._about = {right: self._rules_about(right) for right in (*self.rights, TELLERS_RIGHT)}

    # --- rights ----------------------------------------------------------------------------------

    def standing(self, right: SimRight, quiet_ns: int) -> Standing:
        """What is sure of a right."""
        allowing, denying = self._about[right]
        sure = {each for each in (*allowing, *denying) if each.is_sure(quiet_ns)}
        is_denied = any(each.value for each in denying if each in sure)
        may_be_denied = any(each.value or each not in sure for each in denying)
        is_there = any(each.value for each in allowing if each in sure)
        may_be_there = any(each.value or each not in sure for each in allowing)
        return Standing(
            is_allowed=is_there and not may_be_denied,
            is_refused=is_denied or not may_be_there,
            begun=sum(each.begun for each in (*allowing, *denying)),
        )

    def _rules_about(self, right: SimRight) -> tuple[list[Changing[bool]], list[Changing[bool]]]:
        """The rules that allow it, and those that deny it."""
        if right == TELLERS_RIGHT:
            return [self.rules[TELLER_WRITES]], []
        identity, operation, name = right
        allowing = [rule(identity, operation, each) for each in (topic(name), prefixed(GUARDED_BY))]
        denied = rule(identity, operation, topic(name), Permission.DENY)
        denying = [self.rules[denied]] if denied in self.rules else []
        return [self.rules[each] for each in allowing], denying

    def look(self, quiet_ns: int, now_ns: int) -> None:
        """Rules have changed, or are about to: note since when a right is surely gone."""
        for right in self.rights:
            if not self.standing(right, quiet_ns).is_refused:
                self._refused_since.pop(right, None)
            else:
                self._refused_since.setdefault(right, now_ns)

    def refused_since(self, right: SimRight) -> int | None:
        """Since when it is surely gone; None: it may be there."""
        return self._refused_since.get(right)

    @property
    def are_busy(self) -> bool:
        """Whether any change is under way."""
        rules, passwords = self.rules.values(), self.passwords.values()
        return any(each.is_busy for each in rules) or any(each.is_busy for each in passwords)

    # --- passwords -------------------------------------------------------------------------------

    def is_right(self, name: str, version: int, quiet_ns: int) -> bool:
        """Whether a password is surely the current one. Others never change."""
        known = self.passwords.get(name)
        return known is None or (known.value == version and known.is_sure(quiet_ns))

    def is_wrong(self, name: str, version: int, quiet_ns: int) -> bool:
        """Whether it surely is not."""
        known = self.passwords.get(name)
        return known is not None and known.value != version and known.is_sure(quiet_ns)

    def password_begun(self, name: str) -> int:
        """How often a change of it was asked for."""
        known = self.passwords.get(name)
        return 0 if known is None else known.begun
