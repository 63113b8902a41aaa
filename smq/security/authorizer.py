"""May this peer do that? The decisions of Kafka's StandardAuthorizer.

    a super user                                   may
    a rule that matches denies                     may not, whatever others allow
    a rule that matches allows                     may
    no rule names the resource at all              `allow.everyone.if.no.acl.found`
    rules name it, none of them this               may not

A rule about `User:*` is about principals of every kind, as in Kafka. The wildcard `*` also names
resources that begin with an asterisk, which Kafka forgets (docs/deviations.md).

A rule that allows READ, WRITE, DELETE or ALTER allows DESCRIBE too, one that allows ALTER_CONFIGS
allows DESCRIBE_CONFIGS; a rule that denies them denies nothing else.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from smq.security.acls import (
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.security.principals import EVERYONE, Peer, Principal
from smq.security.rules import OfPattern, Rules

_ALLOWED_BY = {
    Operation.DESCRIBE: frozenset(
        {
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.ALL,
        }
    ),
    Operation.DESCRIBE_CONFIGS: frozenset(
        {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}
    ),
}
"""The operations of rules that allow another operation as well."""
_ALLOWED_BY_ITSELF = {each: frozenset({each, Operation.ALL}) for each in Operation}


# A decision takes as long as so many rules of a peer; so many lengths of prefixes as one more.
RULES_A_DECISION, PREFIXES_A_RULE = 10, 2
Choice = Callable[[list[str]], list[bool]]
"""Says of each of some resources whether a peer may do something with it."""
ChoiceOfAll = Callable[[str], bool]
"""Says whether a peer may do something with every resource whose name begins so."""


class Decision(NamedTuple):
    """Whether a peer may, and the reason: the rule that decided, if it was one."""

    allowed: bool
    rule: AclBinding | None = None
    reason: str = ""


def _nothing() -> None:
    """The rules change by their owner alone."""


class Authorizer:
    """Decides by rules. `refresh` is called before each decision: it may change the rules."""

    refresh: Callable[[], object]

    def __init__(
        self,
        rules: Rules,
        super_users: frozenset[Principal] = frozenset(),
        *,
        allow_if_no_rule: bool = False,
    ) -> None:
        self._rules, self.super_users = rules, super_users
        self._allow_if_no_rule = allow_if_no_rule
        self.refresh = _nothing

    def is_super_user(self, principal: Principal) -> bool:
        """Whether it may do everything, whatever the rules say."""
        return principal in self.super_users

    def decide(
        self, peer: Peer, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision:
        """Whether a peer may do this with a resource, and why."""
        if self.is_super_user(peer.principal):
            return Decision(allowed=True, reason="it is a super user")
        self.refresh()
        return self._decided(peer, operation, resource_type, name)

    def _decided(
        self, peer: Peer, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision:
        """By the rules as they are."""
        allowing: AclBinding | None = None
        are_some, whom = False, _by_whom(peer.principal, peer.host)
        for pattern, entries in self._rules.about(resource_type, name):
            are_some = True
            for entry in _of(entries, whom):
                if not _is_about(entry, operation):
                    continue
                if entry.permission is Permission.DENY:
                    return Decision(
                        allowed=False, rule=AclBinding(pattern, entry), reason="a rule denies it"
                    )
                allowing = allowing or AclBinding(pattern, entry)
        if allowing is not None:
            return Decision(allowed=True, rule=allowing, reason="a rule allows it")
        if are_some:
            return Decision(allowed=False, reason="there are rules for it, and none allows this")
        return Decision(allowed=self._allow_if_no_rule, reason="there is no rule for it")

    def those_allowed(
        self, peer: Peer, operation: Operation, resource_type: ResourceType, names: list[str]
    ) -> list[bool]:
        """As `decide`, of many resources: about a microsecond each, and one for each rule about the
        peer. Where these are far more, each is decided by itself."""
        if self.is_super_user(peer.principal):
            return [True] * len(names)
        self.refresh()
        whose = _names_of(peer.principal)
        prefixes = self._rules.count_of_lengths(resource_type)
        a_decision = RULES_A_DECISION + prefixes // PREFIXES_A_RULE
        if self._rules.count_of_type(resource_type, whose) > a_decision * len(names):
            return [self._decided(peer, operation, resource_type, each).allowed for each in names]
        rules = self._rules.of_type(resource_type, whose)
        may = _those_allowed(rules, peer.host, operation, names)
        if self._allow_if_no_rule:
            return [
                each or self._is_unnamed(resource_type, n)
                for each, n in zip(may, names, strict=True)
            ]
        return may

    def choice(self, peer: Peer, operation: Operation, resource_type: ResourceType) -> Choice:
        """The same by the rules of this moment, which another thread may ask: rules and names may
        be very many."""
        if self.is_super_user(peer.principal):
            return lambda names: [True] * len(names)
        self.refresh()
        rules = self._rules.of_type(resource_type, _names_of(peer.principal))
        patterns = self._rules.patterns() if self._allow_if_no_rule else None

        def chosen(names: list[str]) -> list[bool]:
            may = _those_allowed(rules, peer.host, operation, names)
            if patterns is None:
                return may
            named = _Names()
            for each in patterns:
                if each.resource_type is resource_type:
                    named.add(each)
            return [each or not by for each, by in zip(may, named.match(names), strict=True)]

        return chosen

    def _is_unnamed(self, resource_type: ResourceType, name: str) -> bool:
        return not any(True for _ in self._rules.about(resource_type, name))

    def choice_of_all(
        self, peer: Peer, operation: Operation, resource_type: ResourceType
    ) -> ChoiceOfAll:
        """The same of every resource whose name begins so, also of those that there will be.
        Without a rule for it: if no rule is about any of them."""
        if self.is_super_user(peer.principal):
            return lambda _: True
        self.refresh()
        rules = self._rules.of_type(resource_type, _names_of(peer.principal))
        patterns = self._rules.patterns() if self._allow_if_no_rule else None

        def chosen(prefix: str) -> bool:
            allowed = patterns is not None and not any(
                pattern.resource_type is resource_type and _overlaps(pattern, prefix)
                for pattern in patterns
            )
            for pattern, entry in rules:
                allows = entry.permission is Permission.ALLOW
                if allows and (allowed or not _covers(pattern, prefix)):
                    continue  # Most rules, if they are many: a right to one resource says nothing.
                if entry.host not in (WILDCARD, peer.host) or not _is_about(entry, operation):
                    continue
                if not allows and _overlaps(pattern, prefix):
                    return False
                allowed = allowed or allows
            return allowed

        return chosen

    def may_to_any(self, peer: Peer, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there could be a resource of this type with which a peer may do this
        (authorizeByResourceType of KIP-679). No operation implies another here."""
        if self.decide(peer, operation, resource_type, "hardcode").allowed:
            return True
        allowed: list[AclBinding] = []
        denied: set[tuple[PatternType, str]] = set()
        for binding in self._rules.of_type(resource_type, _names_of(peer.principal)):
            pattern, entry = binding
            if entry.host not in (WILDCARD, peer.host):
                continue
            if entry.operation not in (operation, Operation.ALL):
                continue
            if entry.permission is Permission.ALLOW:
                allowed.append(binding)
            else:
                denied.add((pattern.pattern_type, pattern.name))
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_dominated(each, denied) for each in allowed)


def _those_allowed(
    rules: Iterable[AclBinding], host: str, operation: Operation, names: list[str]
) -> list[bool]:
    """Whether these rules, which are about one peer at a host, allow it an operation on each of
    some resources."""
    allowed, denied = _Names(), _Names()
    for pattern, entry in rules:
        if entry.host in (WILDCARD, host) and _is_about(entry, operation):
            (denied if entry.permission is Permission.DENY else allowed).add(pattern)
    may = allowed.match(names)
    if denied:
        may = [each and not no for each, no in zip(may, denied.match(names), strict=True)]
    return may


class _Names:
    """The names that some patterns match."""

    def __init__(self) -> None:
        self._exact: set[str] = set()
        self._prefixes: dict[int, set[str]] = {}  # By their length.

    def add(self, pattern: ResourcePattern) -> None:
        if pattern.pattern_type is PatternType.LITERAL and pattern.name != WILDCARD:
            self._exact.add(pattern.name)
        else:
            start = "" if pattern.pattern_type is PatternType.LITERAL else pattern.name
            self._prefixes.setdefault(len(start), set()).add(start)

    def __bool__(self) -> bool:
        return bool(self._exact or self._prefixes)

    def match(self, names: list[str]) -> list[bool]:
        """Whether they match each of some names."""
        exact = self._exact
        found = [name in exact for name in names]
        for length, starts in self._prefixes.items():
            matching = [name[:length] in starts for name in names]
            found = [each or also for each, also in zip(found, matching, strict=True)]
        return found


@lru_cache(maxsize=1024)  # Asked for each decision.
def _names_of(principal: Principal) -> tuple[str, ...]:
    """How rules about a principal name it."""
    return str(principal), str(EVERYONE)


@lru_cache(maxsize=1024)  # Likewise.
def _by_whom(principal: Principal, host: str) -> tuple[tuple[str, str], ...]:
    """How rules about a principal at a host name both."""
    return tuple((name, where) for name in _names_of(principal) for where in (WILDCARD, host))


def _of(entries: OfPattern, whom: tuple[tuple[str, str], ...]) -> list[AccessControlEntry]:
    return [entry for each in whom for entry in entries.get(each, ())]


def _is_about(entry: AccessControlEntry, operation: Operation) -> bool:
    """Whether an entry decides about an operation."""
    by = _ALLOWED_BY_ITSELF[operation]
    if entry.permission is Permission.ALLOW:
        by = _ALLOWED_BY.get(operation, by)
    return entry.operation in by


def _covers(pattern: ResourcePattern, prefix: str) -> bool:
    """Whether a pattern matches every name that begins so."""
    if pattern.pattern_type is PatternType.PREFIXED:
        return prefix.startswith(pattern.name)
    return pattern.name == WILDCARD


def _overlaps(pattern: ResourcePattern, prefix: str) -> bool:
    """Whether a pattern matches some name that begins so."""
    return pattern.name.startswith(prefix) or _covers(pattern, prefix)


def _is_dominated(allowing: AclBinding, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether a pattern that is denied covers all that a rule allows."""
    name, pattern_type = allowing.pattern.name, allowing.pattern.pattern_type
    if pattern_type is PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if (PatternType.LITERAL, name) in denied:
            return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
