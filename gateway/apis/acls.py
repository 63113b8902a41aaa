"""DescribeAcls (key 29), CreateAcls (key 30) and DeleteAcls (key 31), versions 1-3.

Answers SECURITY_DISABLED, as Kafka without an authorizer does: tools then report that there are no
access rules rather than that the broker is too old.
"""

from gateway.context import ShardContext
from smq.model.errors import ErrorCode
from smq.wire.generated.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from smq.wire.generated.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from smq.wire.generated.describe_acls import DescribeAclsRequest, DescribeAclsResponse

CODE, SENTENCE = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."


def describe(_request: DescribeAclsRequest, _context: ShardContext) -> DescribeAclsResponse:
    """There is no authorizer."""
    return DescribeAclsResponse(error_code=CODE, error_message=SENTENCE)


def create(request: CreateAclsRequest, _context: ShardContext) -> CreateAclsResponse:
    """There is no authorizer, for each rule."""
    refused = AclCreationResult(error_code=CODE, error_message=SENTENCE)
    return CreateAclsResponse(results=[refused] * len(request.creations))


def delete(request: DeleteAclsRequest, _context: ShardContext) -> DeleteAclsResponse:
    """There is no authorizer, for each filter."""
    refused = DeleteAclsFilterResult(error_code=CODE, error_message=SENTENCE)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
