"""JoinGroup (key 11), versions 0-9.

- Answered when the group's rebalance ends: a member waits for the others. The leader gets the list
  of members with their metadata, which is opaque to the broker.
- An empty group id is INVALID_GROUP_ID, a session timeout out of the broker's bounds
  INVALID_SESSION_TIMEOUT, no protocol in common INCONSISTENT_GROUP_PROTOCOL, an unknown member id
  UNKNOWN_MEMBER_ID, a member too many GROUP_MAX_SIZE_REACHED.
- A group holds 4 MiB of its members' metadata, protocols and ids: a join beyond that is
  GROUP_MAX_SIZE_REACHED. More than 64 protocols of a member, or one that is named twice, are
  INCONSISTENT_GROUP_PROTOCOL.
- From 1: a rebalance timeout of its own (before, it is the session timeout).
- From 4: a new dynamic member gets MEMBER_ID_REQUIRED and its id, to join with (KIP-394).
- From 5: static members, by group instance id; a fenced one gets FENCED_INSTANCE_ID (KIP-345).
- From 7: protocol type in the answer; it and the protocol's name are null with an error (KIP-559).
- From 8: a reason, which we do not keep (KIP-800).
- From 9: a static leader that comes back is told to skip the assignment (KIP-814).

Left out: groups of the consumer protocol (KIP-848).
"""

from functools import partial

from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.group_events import Join, JoinAnswer
from smq.coordinator.inputs import random_uuid
from smq.model.errors import BrokerError
from smq.security.acls import Operation, ResourceType
from smq.wire.generated.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

REBALANCE_TIMEOUT_FROM = 1
MEMBER_ID_REQUIRED_FROM = 4
NULL_PROTOCOL_FROM = 7
SKIP_ASSIGNMENT_FROM = 9


def handle(request: JoinGroupRequest, context: CoordinatorContext) -> JoinGroupResponse | None:
    """Let the member join; the answer comes through a ticket."""
    respond = partial(_respond, nulls=context.version >= NULL_PROTOCOL_FROM)
    event = Join(
        ticket=context.ticket(respond),
        member_id=request.member_id,
        new_member_id=_new_member_id(request, context),
        instance_id=request.group_instance_id,
        client_id=context.header.client_id or "",
        client_host=f"/{context.client_host}",  # Java's format of an address.
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=(
            request.rebalance_timeout_ms
            if context.version >= REBALANCE_TIMEOUT_FROM
            else request.session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        must_know_member_id=context.version >= MEMBER_ID_REQUIRED_FROM,
        may_skip_assignment=context.version >= SKIP_ASSIGNMENT_FROM,
    )
    try:
        context.rights.check(Operation.READ, ResourceType.GROUP, request.group_id)
        context.coordinator.groups.handle(request.group_id, event, context.now)
    except BrokerError as refusal:
        return respond(JoinAnswer(error=refusal.code, member_id=request.member_id))
    return None


def _new_member_id(request: JoinGroupRequest, context: CoordinatorContext) -> str:
    named_for = request.group_instance_id or context.header.client_id or ""
    return f"{named_for}-{random_uuid(context.coordinator.chance)}"


def _respond(answer: JoinAnswer, *, nulls: bool) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name if nulls else answer.protocol_name or "",
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in answer.members
        ],
    )
