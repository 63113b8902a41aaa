"""The rules themselves: who may see, add and delete them."""

from typing import Any

from smq.security.acls import Operation, PatternType, Permission, ResourceType
from smq.wire.generated.create_acls import AclCreation, CreateAclsRequest
from smq.wire.generated.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from smq.wire.generated.describe_acls import DescribeAclsRequest
from tests.oracle.rights import asked
from tests.oracle.rights.cell import Cell

_NOBODY, _EVERY_HOST = "User:nobody", "*"


def rule(cell: Cell, word: str) -> AclCreation:
    return AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=cell.own(word),
        resource_pattern_type=PatternType.LITERAL,
        principal=_NOBODY,
        host=_EVERY_HOST,
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )


def filters(cell: Cell, word: str) -> dict[str, Any]:
    return {
        "resource_type_filter": ResourceType.TOPIC,
        "resource_name_filter": cell.own(word),
        "pattern_type_filter": PatternType.LITERAL,
        "principal_filter": _NOBODY,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }


@asked("DescribeAcls")
def described(cell: Cell) -> None:
    cell.quietly(CreateAclsRequest(creations=[rule(cell, "seen")]), 3)
    request = DescribeAclsRequest(**filters(cell, "seen"))
    cell.until(request, lambda answer: bool(answer.resources), 3)
    cell.ask("one", request)


@asked("CreateAcls")
def created(cell: Cell) -> None:
    rules = [rule(cell, "one"), rule(cell, "two")]
    cell.ask("two", CreateAclsRequest(creations=rules))
    cell.ask("none", CreateAclsRequest(creations=[]))
    bad = rule(cell, "one")
    bad.principal = "no colon"
    cell.ask("a bad one", CreateAclsRequest(creations=[bad]))
    gone = [DeleteAclsFilter(**filters(cell, word)) for word in ("one", "two")]
    answer = cell.quietly(DeleteAclsRequest(filters=gone), 3)
    cell.note("two: created", sum(len(each.matching_acls) for each in answer.filter_results))


@asked("DeleteAcls")
def deleted(cell: Cell) -> None:
    cell.quietly(CreateAclsRequest(creations=[rule(cell, "one")]), 3)
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**filters(cell, "one"))])
    cell.ask("one", request)
    left = cell.quietly(request, 3)
    cell.note("one: deleted", not left.filter_results[0].matching_acls)
