"""All access rules, indexed so that ten thousand cost a decision little.

    literal     (type, name)    -> the rules of that pattern, by principal and host
    prefixed    (type, prefix)  -> likewise
    prefixes    type            -> how long its prefixes are
    hosts       how many rules name an address

A look-up asks for the name, the wildcard, and the beginnings of the name of those lengths. What a
principal may do with any resource of a type is asked of its own rules.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import cast

from smq.security.acls import (
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    PatternType,
    ResourcePattern,
    ResourceType,
)

OfPattern = dict[tuple[str, str], dict[AccessControlEntry, None]]
"""The entries of a pattern, by principal and host, in the order in which they came."""


class Rules:
    """A set of rules that changes one by one. A rule is in it once.

    Invariant: every pattern has a rule, and `lengths` counts the prefixed patterns of each length.
    """

    def __init__(self, bindings: Iterable[AclBinding] = ()) -> None:
        # The keys are patterns. A plain tuple finds one, and is made in a fifth of the time.
        self._of: dict[tuple[ResourceType, str, PatternType], OfPattern] = {}
        self._lengths: dict[ResourceType, Counter[int]] = {}
        self._by_principal: dict[tuple[ResourceType, str], dict[AclBinding, None]] = {}
        self._hosts: Counter[str] = Counter()
        self._count = 0
        for binding in bindings:
            self.add(binding)

    def invariants(self) -> None:
        """Assert the class's invariant."""
        lengths: dict[ResourceType, Counter[int]] = {}
        for (kind, name, pattern_type), entries in self._of.items():
            assert entries
            assert all(entries.values())
            if pattern_type is PatternType.PREFIXED:
                lengths.setdefault(kind, Counter())[len(name)] += 1
        assert {kind: +counts for kind, counts in self._lengths.items() if +counts} == lengths
        assert self._count == sum(1 for _ in self)
        assert {rule for rules in self._by_principal.values() for rule in rules} == set(self)
        assert all(self._by_principal.values())
        assert self._hosts == Counter(rule.entry.host for rule in self)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[AclBinding]:
        """The rules, those of a pattern together."""
        for pattern, by_whom in self._of.items():
            for entries in by_whom.values():
                for entry in entries:
                    yield AclBinding(ResourcePattern(*pattern), entry)

    def __contains__(self, binding: AclBinding) -> bool:
        pattern, entry = binding
        return entry in self._of.get(pattern, {}).get((entry.principal, entry.host), {})

    def add(self, binding: AclBinding) -> None:
        """Add a rule; one that is there already stays as it is."""
        if binding in self:
            return
        pattern, entry = binding
        if pattern not in self._of and pattern.pattern_type is PatternType.PREFIXED:
            self._lengths.setdefault(pattern.resource_type, Counter())[len(pattern.name)] += 1
        by_whom = entry.principal, entry.host
        self._of.setdefault(pattern, {}).setdefault(by_whom, {})[entry] = None
        whose = pattern.resource_type, entry.principal
        self._by_principal.setdefault(whose, {})[binding] = None
        self._hosts[entry.host] += 1
        self._count += 1

    def remove(self, binding: AclBinding) -> None:
        """Remove a rule that is there."""
        pattern, entry = binding
        entries, by_whom = self._of[pattern], (entry.principal, entry.host)
        del entries[by_whom][entry]
        whose = pattern.resource_type, entry.principal
        del self._by_principal[whose][binding]
        if not self._by_principal[whose]:
            del self._by_principal[whose]
        self._hosts[entry.host] -= 1
        if not self._hosts[entry.host]:
            del self._hosts[entry.host]
        self._count -= 1
        if entries[by_whom]:
            return
        del entries[by_whom]
        if entries:
            return
        del self._of[pattern]
        if pattern.pattern_type is PatternType.PREFIXED:
            lengths = self._lengths[pattern.resource_type]
            lengths[len(pattern.name)] -= 1
            if not lengths[len(pattern.name)]:
                del lengths[len(pattern.name)]

    def names_host(self, host: str) -> bool:
        """Whether a rule is about one address, and this."""
        return host in self._hosts

    def patterns(self) -> list[ResourcePattern]:
        """The patterns that have a rule, as of now: about a millisecond for a hundred thousand."""
        return cast("list[ResourcePattern]", [*self._of])

    def about(
        self, resource_type: ResourceType, name: str
    ) -> Iterator[tuple[ResourcePattern, OfPattern]]:
        """The patterns that match a resource, with their entries."""
        for exactly in (name, WILDCARD) if name != WILDCARD else (name,):
            literal = self._of.get((resource_type, exactly, PatternType.LITERAL))
            if literal is not None:
                yield ResourcePattern(resource_type, exactly), literal
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                prefix = resource_type, name[:length], PatternType.PREFIXED
                prefixed = self._of.get(prefix)
                if prefixed is not None:
                    yield ResourcePattern(*prefix), prefixed

    def count_of_type(self, resource_type: ResourceType, principals: Iterable[str]) -> int:
        """How many `of_type` finds."""
        return sum(len(self._by_principal.get((resource_type, each), ())) for each in principals)

    def count_of_lengths(self, resource_type: ResourceType) -> int:
        """How many beginnings of a name `about` looks for, whoever the rules are about."""
        return len(self._lengths.get(resource_type, ()))

    def of_type(self, resource_type: ResourceType, principals: Iterable[str]) -> list[AclBinding]:
        """The rules of a type of resources that name one of these principals, as of now."""
        found = list[AclBinding]()
        for principal in principals:
            found += self._by_principal.get((resource_type, principal), ())
        return found
