"""Worlds of access rules and questions about them, made by chance from a seed.

The words are few and alike, so that rules meet: names that begin with each other, two addresses,
principals of two kinds.
"""

from random import Random
from typing import NamedTuple

from smq.security.acls import (
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.security.principals import Peer, Principal

COUNT = 120
QUESTIONS = 80
NAMES = "a", "ab", "abc", "b", "bc", "é", "a.b"
PATTERN_NAMES = (*NAMES, "*")
PRINCIPALS = "User:alice", "User:bob", "User:*", "Group:alice", "User:a:b", "User:"
PEERS = "User:alice", "User:bob", "Group:alice", "User:root", "User:a:b"
HOSTS = "*", "10.0.0.1", "10.0.0.2"
TYPES = ResourceType.TOPIC, ResourceType.GROUP
OPERATIONS = tuple(each for each in Operation if each > Operation.ANY)
COMMON = Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE
PERMISSIONS = Permission.ALLOW, Permission.ALLOW, Permission.DENY


class Ask(NamedTuple):
    """May this peer? The name None: with any resource of the type."""

    peer: Peer
    operation: Operation
    resource_type: ResourceType
    name: str | None


class World(NamedTuple):
    """Rules, and questions about them."""

    allow_if_no_rule: bool
    rules: tuple[AclBinding, ...]
    questions: tuple[Ask, ...]

    def lines(self) -> list[str]:
        """What Referee.java reads."""
        lines = [f"world\t{str(self.allow_if_no_rule).lower()}"]
        for (kind, name, how), entry in self.rules:
            lines.append(_line("rule", kind, how, name, *entry))
        for peer, operation, of, named in self.questions:
            about = ("any", of) if named is None else ("ask", of, named)
            lines.append(_line(*about, peer.principal, peer.host, operation))
        return lines


def _line(*words: object) -> str:
    """Words with tabs between them; of a number, its digits."""
    return "\t".join(str(int(word) if isinstance(word, int) else word) for word in words)


def worlds() -> list[World]:
    """Always the same ones."""
    random = Random(34)
    return [_world(random) for _ in range(COUNT)]


def _operation(random: Random) -> Operation:
    return random.choice(COMMON if random.random() < 0.6 else OPERATIONS)


def _world(random: Random) -> World:
    rules = tuple(_rule(random) for _ in range(random.choice((0, 1, 2, 4, 8, 20))))
    questions = tuple(_question(random) for _ in range(QUESTIONS))
    return World(random.random() < 0.3, rules, questions)


def _rule(random: Random) -> AclBinding:
    how = random.choice((PatternType.LITERAL, PatternType.PREFIXED))
    name = random.choice(PATTERN_NAMES if how is PatternType.LITERAL else NAMES)
    entry = AccessControlEntry(
        random.choice(PRINCIPALS),
        random.choice(HOSTS),
        _operation(random),
        random.choice(PERMISSIONS),
    )
    return AclBinding(ResourcePattern(random.choice(TYPES), name, how), entry)


def _question(random: Random) -> Ask:
    peer = Peer(Principal.parse(random.choice(PEERS)), random.choice(HOSTS[1:]))
    kind = random.choice(TYPES)
    if random.random() < 0.2:
        return Ask(peer, random.choice((Operation.READ, Operation.WRITE)), kind, None)
    operation = _operation(random)
    return Ask(peer, operation, kind, random.choice(NAMES))
