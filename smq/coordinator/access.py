"""Users' credentials and access rules: kept in the store, published to our other processes.

A change is checked as Kafka's controller checks it, and is in force here at once; it is in force in
the other processes before it is answered.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from smq.model.config import Config
from smq.model.errors import BrokerError, ErrorCode
from smq.security.access import authorizer_of
from smq.security.acls import AclBinding, AclBindingFilter
from smq.security.audit import Audit
from smq.security.credentials import ScramCredential, ScramMechanism
from smq.security.principals import Peer
from smq.security.published import (
    ACCESS_BYTES_MAX,
    Change,
    UserCredential,
    encode,
    line_of,
    line_of_change,
)
from smq.security.rights import Rights
from smq.security.rules import Rules
from smq.store.store import Store

PORTION_RULES = 1000
# What earlier publications have changed is told again to who was busy meanwhile.
TOLD_MAX, TOLD_BYTES_MAX = 16, 64 * 1024
_Key = AclBinding | tuple[str, ScramMechanism]


class AccessControl:
    """The users and rules, and the authorizer by them; None: everybody may do everything.

    changes   grows with each change, for who publishes them
    audit     who did what, and who was refused what
    """

    def __init__(self, store: Store, config: Config) -> None:
        self._tables = store.access
        self._rules = Rules(self._tables.rules())
        self.authorizer = authorizer_of(config, self._rules)
        self.audit = Audit(on=config.is_audited)
        credentials = self._tables.credentials()
        self._credentials = {(each.user, each.mechanism): each.credential for each in credentials}
        self._lines: dict[_Key, str] = {rule: line_of(rule) for rule in self._rules}
        self._lines.update(((each.user, each.mechanism), line_of(each)) for each in credentials)
        self._bytes = sum(map(_size, self._lines.values()))
        self.changes = 0
        self._gone: dict[str, None] = {}  # Since the last publication.
        self._come: dict[str, None] = {}
        self._told: deque[str] | None = None  # None: what was published before is not known.

    def invariants(self) -> None:
        """Assert that every rule and credential has its line."""
        self._rules.invariants()
        assert self._lines.keys() == {*self._rules, *self._credentials}
        assert self._bytes == sum(map(_size, self._lines.values())) <= ACCESS_BYTES_MAX

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a user nor a rule."""
        return not self._lines

    def publication(self) -> bytes:
        """What the other processes get now: it follows the one before."""
        told = deque[str]() if self._told is None else self._told
        if self._told is not None:
            told.append(line_of_change(Change([*self._gone], [*self._come])))
            while len(told) > TOLD_MAX or sum(map(len, told)) > TOLD_BYTES_MAX:
                told.popleft()
        self._told = told
        self._gone.clear()
        self._come.clear()
        return encode(self._lines.values(), told)

    def _enter(self, key: _Key, line: str) -> None:
        self._lines[key] = line
        if line in self._gone:
            del self._gone[line]
        else:
            self._come[line] = None

    def _remove(self, key: _Key) -> str:
        """Returns its line."""
        line = self._lines.pop(key)
        if line in self._come:
            del self._come[line]
        else:
            self._gone[line] = None
        return line

    def rights_of(self, peer: Peer) -> Rights:
        """What a peer may do."""
        return Rights(self.authorizer, peer, self.audit)

    # --- rules -----------------------------------------------------------------------------------

    def create(self, rules: Iterable[AclBinding]) -> None:
        """Add rules; those that are there stay. Raises BrokerError, and none is added."""
        new = {rule: line_of(rule) for rule in rules if rule not in self._rules}
        self._take_room(sum(map(_size, new.values())))
        self._tables.add_rules(new)
        for rule, line in new.items():
            self._rules.add(rule)
            self._enter(rule, line)
        self.changes += bool(new)

    def find(self, wanted: AclBindingFilter) -> Iterator[list[AclBinding]]:
        """The rules that a filter finds among those that are there now, in portions: looking at one
        takes a few milliseconds."""
        keys = list(self._lines)
        for first in range(0, len(keys), PORTION_RULES):
            some = keys[first : first + PORTION_RULES]
            yield [rule for rule in some if isinstance(rule, AclBinding) and wanted.matches(rule)]

    def delete(self, rules: Iterable[AclBinding]) -> None:
        """Delete rules, those of them that are there."""
        gone = [rule for rule in dict.fromkeys(rules) if rule in self._rules]
        self._tables.delete_rules(gone)
        for rule in gone:
            self._rules.remove(rule)
            self._bytes -= _size(self._remove(rule))
        self.changes += bool(gone)

    # --- users -----------------------------------------------------------------------------------

    def credentials(self) -> dict[str, dict[ScramMechanism, ScramCredential]]:
        """The credentials of each user."""
        found: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        for (user, mechanism), credential in self._credentials.items():
            found.setdefault(user, {})[mechanism] = credential
        return found

    def has_credential(self, user: str, mechanism: ScramMechanism) -> bool:
        """Whether a user has a credential of a mechanism."""
        return (user, mechanism) in self._credentials

    def put_credential(self, entry: UserCredential) -> None:
        """Give a user this credential, in place of the one of its mechanism. Raises BrokerError."""
        key, line = (entry.user, entry.mechanism), line_of(entry)
        self._take_room(
            _size(line) - _size(self._lines[key]) if key in self._lines else _size(line)
        )
        self._tables.put_credential(entry)
        self._credentials[key] = entry.credential
        if key in self._lines:
            self._remove(key)
        self._enter(key, line)
        self.changes += 1

    def delete_credential(self, user: str, mechanism: ScramMechanism) -> None:
        """Delete a credential that is there."""
        del self._credentials[user, mechanism]
        self._bytes -= _size(self._remove((user, mechanism)))
        self._tables.delete_credential(user, mechanism)
        self.changes += 1

    def _take_room(self, size: int) -> None:
        if self._bytes + size > ACCESS_BYTES_MAX:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"There is no room for more: users and rules may take {ACCESS_BYTES_MAX} bytes.",
            )
        self._bytes += size


def _size(line: str) -> int:
    """The bytes that a line takes among others."""
    return len(line.encode()) + 1
