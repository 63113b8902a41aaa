"""The administrator of a secured broker: changes rules and passwords, and looks at them at the end.

Each change is repeated until it is answered.
"""

from collections.abc import Callable

from smq.model.errors import ErrorCode
from smq.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from smq.testing.simulation.clients import Message, SimClient
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.ledger import Broken
from smq.testing.simulation.people import (
    ADMIN,
    GUESTS,
    ITERATIONS,
    Identity,
    first_rules,
    salted_password,
)
from smq.testing.simulation.permits import DELETED, Changing
from smq.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from smq.wire.generated.create_acls import AclCreation, CreateAclsRequest
from smq.wire.generated.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from smq.wire.generated.describe_acls import DescribeAclsRequest
from smq.wire.generated.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

ACLS, SCRAM = 3, 0  # Versions.
CHECKS = 1000  # Attempts.
Judge = Callable[[Message], bool]


class Guardian(SimClient):
    """Changes what others may do. `unchecked`: what it wants to be told at the end."""

    def __init__(self, world: Environment, name: str) -> None:
        super().__init__(world, name)
        self.identity = ADMIN
        self.unchecked: set[str] = set()

    # --- changes ---------------------------------------------------------------------------------

    def permit(self, which: int, *, is_there: bool) -> None:
        """Create or delete a rule, unless it is being changed."""
        permits = self.world.permits
        rule = permits.order[which % len(permits.order)]
        changing = permits.rules[rule]
        if not changing.is_busy and changing.value != is_there:
            self.world.detail(lambda: f"rule {which} is {'created' if is_there else 'deleted'}")
            request: Message = creation(rule) if is_there else deletion(rule)
            name = "CreateAcls" if is_there else "DeleteAcls"
            self._change(changing, is_there, (name, ACLS, request), _is_done)

    def change_password(self, which: int, *, deletes: bool) -> None:
        """Give a user a new password, or none, unless that is being changed."""
        identity = GUESTS[which % len(GUESTS)]
        permits = self.world.permits
        changing = permits.passwords[identity.name]
        if changing.is_busy or (deletes and changing.value == DELETED):
            return
        version = DELETED
        if not deletes:
            permits.newest[identity.name] += 1
            version = permits.newest[identity.name]
        self.world.detail(lambda: f"{identity.name} gets password {version}")
        request = _alteration(identity, version)
        self._change(changing, version, ("AlterUserScramCredentials", SCRAM, request), _is_altered)

    def _change(
        self,
        changing: Changing[bool] | Changing[int],
        value: int,
        asked: tuple[str, int, Message],
        judge: Judge,
    ) -> None:
        """Ask for a change; again if there is no answer."""
        changing.is_busy = True
        connection = self.any_connection()
        if connection is None:
            self.again(lambda: self._change(changing, value, asked, judge))
            return
        world, permits = self.world, self.world.permits
        changing.begin()
        permits.look(world.quiet_ns, world.clock.now_ns)

        def answered(answer: Message) -> None:
            if answer is not None and judge(answer):
                self.in_vain = 0
                changing.answered(value)  # type: ignore[arg-type]
            else:
                changing.lost(value, world.clock.now_ns)  # type: ignore[arg-type]
                self.again(lambda: self._change(changing, value, asked, judge))
            permits.look(world.quiet_ns, world.clock.now_ns)

        connection.ask(*asked, answered)

    # --- at the end ------------------------------------------------------------------------------

    def look(self) -> None:
        """Compare the rules and the users with what was promised."""
        self.unchecked = {"rules", "users"}
        everything = DescribeAclsRequest(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        self.ask_until("DescribeAcls", ACLS, everything, self._see_rules, CHECKS)
        users = DescribeUserScramCredentialsRequest(users=None)
        self.ask_until("DescribeUserScramCredentials", SCRAM, users, self._see_users, CHECKS)

    def _see_rules(self, answer: Message) -> bool:
        if answer.error_code:
            return False
        there = {
            (each.resource_name, each.pattern_type, *_entry(acl))
            for each in answer.resources
            for acl in each.acls
        }
        quiet_ns, changing_rules = self.world.quiet_ns, self.world.permits.rules
        known = {_as_told(each) for each in (*first_rules(), *changing_rules)}
        if unknown := there - known:
            raise Broken(f"nobody has given the rule {min(unknown)}")
        for rule, changing in changing_rules.items():
            if not changing.is_sure(quiet_ns):
                continue
            entry, is_there = rule.entry, _as_told(rule) in there
            if is_there != changing.value:
                words = "is back" if is_there else "is gone"
                raise Broken(f"{entry.operation.name} of {entry.principal}: a rule {words}")
        self.unchecked.discard("rules")
        return True

    def _see_users(self, answer: Message) -> bool:
        if answer.error_code:
            return False
        there = {each.user for each in answer.results}
        quiet_ns = self.world.quiet_ns
        for name, changing in self.world.permits.passwords.items():
            if changing.is_sure(quiet_ns) and (name in there) == (changing.value == DELETED):
                raise Broken(f"the user {name} is {'back' if name in there else 'gone'}")
        self.unchecked.discard("users")
        return True


def _as_told(rule: AclBinding) -> tuple[str, int, str, str, int, int]:
    """As `_see_rules` compares it."""
    pattern, entry = rule
    return pattern.name, pattern.pattern_type, *entry


def _entry(acl: Message) -> tuple[str, str, int, int]:
    return acl.principal, acl.host, acl.operation, acl.permission_type


def creation(rule: AclBinding) -> CreateAclsRequest:
    """Asks for a rule."""
    (kind, name, pattern_type), (principal, host, operation, permission) = rule
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=pattern_type,
                principal=principal,
                host=host,
                operation=operation,
                permission_type=permission,
            )
        ]
    )


def deletion(rule: AclBinding) -> DeleteAclsRequest:
    """Asks for the end of a rule."""
    (kind, name, pattern_type), (principal, host, operation, permission) = rule
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=kind,
                resource_name_filter=name,
                pattern_type_filter=pattern_type,
                principal_filter=principal,
                host_filter=host,
                operation=operation,
                permission_type=permission,
            )
        ]
    )


def _is_done(answer: Message) -> bool:
    rows = answer.results if hasattr(answer, "results") else answer.filter_results
    return all(each.error_code == ErrorCode.NONE for each in rows)


def _alteration(identity: Identity, version: int) -> AlterUserScramCredentialsRequest:
    name, mechanism = identity.name, identity.stored.value
    if version == DELETED:
        deletion = ScramCredentialDeletion(name=name, mechanism=mechanism)
        return AlterUserScramCredentialsRequest(deletions=[deletion])
    salt, password = salted_password(identity, version)
    upsertion = ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=ITERATIONS, salt=salt, salted_password=password
    )
    return AlterUserScramCredentialsRequest(upsertions=[upsertion])


def _is_altered(answer: Message) -> bool:
    """RESOURCE_NOT_FOUND: an earlier request has deleted it."""
    [row] = answer.results
    return row.error_code in {ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND}
