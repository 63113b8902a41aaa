"""`smq acl add|list|remove|why`: access rules, which hold where the broker has an authorizer."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    BrokersDirectory,
    checked_text,
    cluster_at,
    refusal,
)
from smq.cli.output import say
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    described,
)
from smq.security.addresses import is_address, written
from smq.security.principals import Peer, Principal
from smq.wire.codec import STRING_BYTES_MAX

if TYPE_CHECKING:
    from smq.client.kafka.cluster import Cluster
    from smq.security.authorizer import Authorizer

app = typer.Typer(help="Add, list, remove and explain access rules.", no_args_is_help=True)
RULES = (
    'JSON: [{"principal", "host", "operation", "permission", "resource_type", "name", '
    '"pattern_type"}]'
)
# Of delegation tokens there are none here: Kafka's tools list and change rules about them.
_OF_TOKENS = {Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}
_OPERATIONS = {
    each.name.lower(): each for each in Operation if each > Operation.ANY and each not in _OF_TOKENS
}

PrincipalName = Annotated[
    str,
    typer.Argument(metavar="PRINCIPAL", help="`User:alice`, or `User:*`, which is everybody."),
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation", help=f"May be repeated: {', '.join(_OPERATIONS)}.", metavar="OPERATION"
    ),
]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="A topic; `*` is all of them.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="A consumer group.")]
Ids = Annotated[list[str] | None, typer.Option("--transactional-id", help="A transactional id.")]
OnCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="The names are beginnings of names.")]


def _written(host: str | None) -> str | None:
    """As clients' addresses are written: a rule with another form of one would never apply."""
    return host and written(checked_text(host, STRING_BYTES_MAX))


def _address(host: str) -> str:
    """Likewise, of an address only."""
    if host != WILDCARD and not is_address(host):
        raise typer.BadParameter(f"{host} is no address of IPv4 or IPv6")
    return written(checked_text(host, STRING_BYTES_MAX))


Host = Annotated[
    str, typer.Option("--host", help="Only from this address; `*` is any.", callback=_address)
]
Deny = Annotated[bool, typer.Option("--deny", help="Deny: such a rule wins over others.")]


@app.command(epilog=RULES)
def add(  # noqa: PLR0913, PLR0917  (what a rule says)
    principal: PrincipalName,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Ids = None,
    host: Host = WILDCARD,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    data_dir: BrokersDirectory = None,
    *,
    cluster: OnCluster = False,
    prefixed: Prefixed = False,
    deny: Deny = False,
    as_json: AsJson = False,
) -> None:
    """Add rules: every operation on every resource that is named. They are in force at once."""
    from smq.client.kafka.access_rules import add_rules  # noqa: PLC0415  (NumPy takes its time.)

    permission = Permission.DENY if deny else Permission.ALLOW
    who = str(_principal(principal))
    rules = [
        AclBinding(
            ResourcePattern(kind, name, _how(kind, prefixed=prefixed)),
            AccessControlEntry(who, host, each, permission),
        )
        for kind, name in _resources(topic, group, transactional_id, cluster=cluster)
        for each in _operations(operation)
    ]
    if not rules:
        raise refusal("name an --operation, and a resource: --topic, --group, --cluster, …")
    with _cluster(bootstrap, data_dir, "ALTER") as broker:
        add_rules(broker, rules)
    _show(rules, as_json=as_json)


@app.command("list", epilog=RULES)
def list_rules(  # noqa: PLR0913, PLR0917  (as above)
    principal: Annotated[str | None, typer.Option("--principal", help="Of this principal.")] = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Ids = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    data_dir: BrokersDirectory = None,
    *,
    cluster: OnCluster = False,
    as_json: AsJson = False,
) -> None:
    """List the rules, or those that apply to a resource, wildcards and prefixes included."""
    named = list(_resources(topic, group, transactional_id, cluster=cluster))
    entry = AccessControlEntryFilter(principal and checked_text(principal, STRING_BYTES_MAX))
    wanted = [
        AclBindingFilter(ResourcePatternFilter(kind, name, PatternType.MATCH), entry)
        for kind, name in named
    ]
    with _cluster(bootstrap, data_dir, "DESCRIBE") as broker:
        found = _found(broker, wanted or [AclBindingFilter(entry=entry)])
    _show(found, as_json=as_json)


@app.command(epilog=RULES)
def remove(  # noqa: PLR0913, PLR0917  (as above)
    principal: PrincipalName,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Ids = None,
    host: Annotated[
        str | None,
        typer.Option("--host", help="Only rules of this address.", callback=_written),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    data_dir: BrokersDirectory = None,
    *,
    cluster: OnCluster = False,
    prefixed: Prefixed = False,
    deny: Annotated[bool, typer.Option("--deny", help="Only rules that deny.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove rules as `add` with the same options adds them: those that deny only with --deny.

    Without --operation and --host those of each; with PRINCIPAL alone, all that it has. They end at
    once.
    """
    from smq.client.kafka.access_rules import delete_rules  # noqa: PLC0415  (as above)

    who = str(_principal(principal))
    named = list(_resources(topic, group, transactional_id, cluster=cluster))
    asked = _operations(operation)
    patterns = [
        ResourcePatternFilter(kind, name, _how(kind, prefixed=prefixed)) for kind, name in named
    ] or [ResourcePatternFilter(pattern_type=PatternType.PREFIXED if prefixed else PatternType.ANY)]
    permission = Permission.ALLOW if named or asked or host or prefixed else Permission.ANY
    entries = [
        AccessControlEntryFilter(who, host, each, Permission.DENY if deny else permission)
        for each in asked or [Operation.ANY]
    ]
    with _cluster(bootstrap, data_dir, "ALTER") as broker:
        gone = [
            rule
            for pattern in patterns
            for entry in entries
            for rule in delete_rules(broker, AclBindingFilter(pattern, entry))
        ]
    if not gone:
        raise refusal(f"{who} has no such rule; `smq acl list --principal {who}` shows its rules")
    _show(gone, as_json=as_json)


@app.command(epilog='JSON: {"allowed", "reason", "rule": TEXT or null}')
def why(  # noqa: PLR0913, PLR0917  (as above)
    principal: PrincipalName,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Ids = None,
    host: Annotated[
        str, typer.Option("--host", help="The address it comes from.", callback=_address)
    ] = "127.0.0.1",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    data_dir: BrokersDirectory = None,
    *,
    cluster: OnCluster = False,
    as_json: AsJson = False,
) -> None:
    """Say whether a principal may do something, and which rule decides it."""
    named = list(_resources(topic, group, transactional_id, cluster=cluster))
    asked = _operations(operation)
    if len(named) != 1 or len(asked) != 1:
        raise refusal("name one --operation and one resource: --topic, --group, --cluster, …")
    [(kind, name)], [wanted] = named, asked
    peer = Peer(_principal(principal), host)
    with _cluster(bootstrap, data_dir, "DESCRIBE and DESCRIBE_CONFIGS") as broker:
        about = ResourcePatternFilter(kind, name, PatternType.MATCH)
        rules = _found(broker, [AclBindingFilter(about)])
        authorizer = _authorizer(broker, rules)
    decision = authorizer.decide(peer, wanted, kind, name)
    rule = None if decision.rule is None else described(decision.rule)
    if as_json:
        say(json.dumps({"allowed": decision.allowed, "reason": decision.reason, "rule": rule}))
        return
    may = "may" if decision.allowed else "may not"
    because = decision.reason if rule is None else f"{decision.reason}: {rule}"
    say(f"{peer.principal} {may} {wanted.name} {kind.name} {name} from {host}: {because}")


@contextmanager
def _cluster(bootstrap: str, data_dir: Path | None, rights: str) -> "Iterator[Cluster]":
    """The cluster; who lacks the rights that the block needs is told which."""
    with cluster_at(bootstrap, data_dir) as cluster:
        try:
            yield cluster
        except BrokerError as error:
            if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise
            raise refusal(
                f"this needs {rights} on the cluster, which this user has not; with --data-dir the "
                "broker's user and root may do everything"
            ) from error


def _how(kind: ResourceType, *, prefixed: bool) -> PatternType:
    is_prefix = prefixed and kind is not ResourceType.CLUSTER
    return PatternType.PREFIXED if is_prefix else PatternType.LITERAL


def _authorizer(cluster: "Cluster", rules: list[AclBinding]) -> "Authorizer":
    """One that decides like the broker's. Exits if the broker has none."""
    from smq.client.kafka.access_rules import authorizer_of  # noqa: PLC0415  (as above)

    found = authorizer_of(cluster, rules)
    if found is None:
        raise refusal("the broker has no authorizer: everybody may do everything")
    return found


def _found(cluster: "Cluster", wanted: list[AclBindingFilter]) -> list[AclBinding]:
    from smq.client.kafka.access_rules import find_rules  # noqa: PLC0415  (as above)

    return [rule for each in wanted for rule in find_rules(cluster, each)]


def _resources(
    topics: list[str] | None, groups: list[str] | None, ids: list[str] | None, *, cluster: bool
) -> Iterator[tuple[ResourceType, str]]:
    for kind, names in (
        (ResourceType.TOPIC, topics),
        (ResourceType.GROUP, groups),
        (ResourceType.TRANSACTIONAL_ID, ids),
        (ResourceType.CLUSTER, [CLUSTER_NAME] if cluster else []),
    ):
        for name in names or ():
            yield kind, checked_text(name, STRING_BYTES_MAX)


def _operations(names: list[str] | None) -> list[Operation]:
    unknown = [name for name in names or () if _word(name) not in _OPERATIONS]
    if unknown:
        raise refusal(f"there is no operation {unknown[0]!r}; there are {', '.join(_OPERATIONS)}")
    return [_OPERATIONS[_word(name)] for name in names or ()]


def _word(name: str) -> str:
    return name.lower().replace("-", "_")


def _principal(text: str) -> Principal:
    try:
        return Principal.parse(checked_text(text, STRING_BYTES_MAX))
    except ValueError:
        raise refusal(f"{text!r} is no principal, which has a kind: User:{text}") from None


def _show(rules: list[AclBinding], *, as_json: bool) -> None:
    if not as_json:
        for rule in rules:
            say(described(rule))
        return
    say(json.dumps([_as_json(rule) for rule in rules]))


def _as_json(rule: AclBinding) -> dict[str, Any]:
    pattern, entry = rule
    fields = {**entry._asdict(), **pattern._asdict()}
    return {
        name: value.name if isinstance(value, IntEnum) else value for name, value in fields.items()
    }
