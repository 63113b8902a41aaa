"""What the console's pages about users and rules ask: of the broker, and of the audit log."""

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from smq.app.process.audit_files import ACCESSES, DIRECTORY
from smq.client.kafka.access_rules import authorizer_of, find_rules
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.users import users
from smq.front.console.desk import Denial, Ruling, ShownUser
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import (
    AclBinding,
    AclBindingFilter,
    Operation,
    PatternType,
    ResourcePatternFilter,
    ResourceType,
    described,
)
from smq.security.credentials import ScramMechanism
from smq.security.principals import EVERYONE, USER, Peer, Principal

TAIL_BYTES = 256 * 1024  # Of each file: some thousand lines.
PRINCIPALS_MAX = 1000
ANY_OTHER = "any other user"
_NOBODY = Principal(USER, "")  # No user has this name: it gets what all get.
_DENIED = "denied"


def users_of(cluster: Cluster) -> list[ShownUser]:
    """The users that have passwords."""
    return [
        ShownUser(name, tuple(_mechanism(each, count) for each, count in sorted(its.items())))
        for name, its in sorted(users(cluster).items())
    ]


def _mechanism(number: int, iterations: int) -> str:
    known = {each.value: each.sasl_name for each in ScramMechanism}
    return f"{known.get(number, number)}, {iterations} iterations"


def rules_about(cluster: Cluster, kind: ResourceType, name: str) -> list[AclBinding]:
    """The rules that apply to a resource; of the kind ANY all rules."""
    if kind is ResourceType.ANY:
        return find_rules(cluster, AclBindingFilter())
    about = ResourcePatternFilter(kind, name, PatternType.MATCH)
    return find_rules(cluster, AclBindingFilter(about))


def rulings_about(
    cluster: Cluster, operation: Operation, kind: ResourceType, name: str, host: str
) -> list[Ruling]:
    """Who may do something from an address, and why: of all that rules, passwords or settings name,
    then of any other user. As `smq acl why` decides."""
    rules = rules_about(cluster, kind, name)
    authorizer = authorizer_of(cluster, rules)
    if authorizer is None:
        sentence = "the broker has no authorizer: everybody may do everything"
        raise BrokerError(ErrorCode.SECURITY_DISABLED, sentence)
    named = {str(each) for each in authorizer.super_users}
    named |= {rule.entry.principal for rule in rules} - {str(EVERYONE)}
    named |= {f"{USER}:{user}" for user in users(cluster)}
    found = []
    for principal in [*map(Principal.parse, sorted(named)[:PRINCIPALS_MAX]), _NOBODY]:
        allowed, rule, reason = authorizer.decide(Peer(principal, host), operation, kind, name)
        who = ANY_OTHER if principal is _NOBODY else str(principal)
        found.append(Ruling(who, allowed, reason, "" if rule is None else described(rule)))
    return found


def denials(data_dir: Path, count: int) -> list[Denial]:
    """The newest denials of the audit log, the newest first."""
    return [*islice(_denials(data_dir / DIRECTORY), count)]


def _denials(directory: Path) -> Iterator[Denial]:
    for name in (ACCESSES, f"{ACCESSES}.1"):
        for line in reversed(_last_lines(directory / name)):
            try:
                told = json.loads(line)
            except ValueError:  # A death has cut it.
                continue
            if isinstance(told, dict) and told.get("event") == _DENIED:
                fields = {each: str(told.get(each, "")) for each in Denial._fields}
                yield Denial(**fields)._replace(times=str(told.get("count", 1)))


def _last_lines(path: Path) -> list[bytes]:
    """The whole lines at the end of a file; none if there is no file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        start = max(0, os.fstat(fd).st_size - TAIL_BYTES)
        lines = os.pread(fd, TAIL_BYTES, start).split(b"\n")
    except OSError:
        return []
    finally:
        os.close(fd)
    return lines[1:] if start else lines
