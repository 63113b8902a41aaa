"""ListGroups (key 16), versions 0-5.

- Every group with its protocol type. Admin clients ask every node and join the answers, so that a
  group is listed by the node that FindCoordinator names for it, and by no other.
- From 4: states, and a filter by them (KIP-518). From 5: types, and a filter by them (KIP-848); all
  groups are classic. Filters ignore case; an unknown state or type matches nothing.
"""

from collections.abc import Iterator

from gateway.apis.find_coordinator import coordinator_of
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.group import Group
from smq.security.acls import Operation
from smq.wire.generated.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"
# Of a part: listing a group takes some microseconds, and its name by its length.
PART_GROUPS, PART_LETTERS = 500, 250_000


def handle(request: ListGroupsRequest, context: CoordinatorContext) -> Iterator[ListGroupsResponse]:
    """The groups of the asking node, in parts; one part at least."""
    part: list[Group] = []
    letters = 0
    for group in list(context.coordinator.groups):
        part.append(group)
        letters += len(group.group_id)
        if len(part) == PART_GROUPS or letters >= PART_LETTERS:
            yield _part(part, request, context)
            part, letters = [], 0
    yield _part(part, request, context)


def _part(
    groups: list[Group], request: ListGroupsRequest, context: CoordinatorContext
) -> ListGroupsResponse:
    rights = context.rights
    sees_all = rights.cluster(Operation.DESCRIBE)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC,
            )
            for group in groups
            if coordinator_of(group.group_id, context.nodes).id == context.node_id
            and (not states or group.state.value.lower() in states)
            and (not types or CLASSIC in types)
            and (sees_all or rights.group(Operation.DESCRIBE, group.group_id))
        ]
    )
