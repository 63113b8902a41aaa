"""Clients with few rights, for tests of what they are refused."""

from dataclasses import replace

from smq.coordinator.access import AccessControl
from smq.model.config import Config
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import (
    AccessControlEntry,
    AclBinding,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.security.audit import Audit
from smq.security.authorizer import Authorizer
from smq.security.caller import Caller
from smq.security.principals import Peer, Principal
from smq.security.rights import Rights
from smq.security.rules import Rules
from smq.wire.internal.frames import WrittenPeer
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.shard_api_bench import ShardBench


def with_authorizer(config: Config) -> Config:
    return replace(config, authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:root")


def rules_of(user: str, *rights: str) -> list[AclBinding]:
    """Rules that allow a user `OPERATION TYPE NAME`; "" gives no right."""
    rules = []
    for words in filter(None, rights):
        operation, resource_type, name = words.split(" ", 2)
        pattern = ResourcePattern(ResourceType[resource_type], name)
        entry = AccessControlEntry(f"User:{user}", "*", Operation[operation], Permission.ALLOW)
        rules.append(AclBinding(pattern, entry))
    return rules


def limited(bench: CoordinatorBench, user: str, *rights: str) -> None:
    """From now on a user asks, who may do only this."""
    turn_on(bench)
    bench.asker = WrittenPeer(f"User:{user}", "10.0.0.9", "PLAINTEXT")
    bench.coordinator.access.create(rules_of(user, *rights))


def super_user(bench: CoordinatorBench) -> None:
    """From now on a super user asks."""
    turn_on(bench)
    bench.asker = WrittenPeer("User:root", "10.0.0.9", "PLAINTEXT")


def limit_caller(bench: ShardBench, user: str, *rights: str) -> Rules:
    """From now on a user asks a shard, who may do only this; returns the rules, to be changed."""
    rules = Rules(rules_of(user, *rights))
    authorizer = Authorizer(rules, frozenset({Principal("User", "root")}))
    peer = Peer(Principal("User", user), "h")
    bench.caller = Caller("10.0.0.9", rights=Rights(authorizer, peer, Audit()))
    return rules


def turn_on(bench: CoordinatorBench) -> None:
    """Turn the authorizer on."""
    of = bench.coordinator
    if of.access.authorizer is None:
        of.access = AccessControl(of.store, with_authorizer(of.config))
