"""What one peer may do. Handlers ask this and nothing else, each time anew.

    context.rights.topic(Operation.READ, name)            -> bool
    context.rights.error(Operation.READ, TOPIC, name)     -> Kafka's code, or NONE
    context.rights.check(Operation.READ, TOPIC, name)     raises BrokerError
    context.rights.asks(Operation.READ, TOPIC, name)      -> bool

What was allowed a moment ago may not be now: nobody keeps an answer.

`error`, `check` and `asks` are about what a client has asked for: their refusals are audited. The
others choose what it is shown, and their refusals are no denials.
"""

from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType
from smq.security.audit import OFF, Audit
from smq.security.authorizer import Authorizer, Choice, ChoiceOfAll
from smq.security.principals import Peer

_REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_WORDS = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "Transactional Id",
}


def refusal(resource_type: ResourceType) -> BrokerError:
    """What a client is told that may not do something with a resource of a type."""
    sentence = f"{_WORDS[resource_type]} authorization failed."
    return BrokerError(_REFUSALS[resource_type], sentence)


class Rights:
    """An authorizer's answers to one peer. Without an authorizer a peer may do everything.

    api   of the request that is being handled, for the audit log
    """

    def __init__(self, authorizer: Authorizer | None, peer: Peer, audit: Audit = OFF) -> None:
        self._authorizer, self.peer, self.audit = authorizer, peer, audit
        self.api = ""
        self.is_unlimited = authorizer is None or authorizer.is_super_user(peer.principal)
        """Whether it may do everything, whatever the rules say: nothing needs to be asked."""

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the peer may do this with a resource."""
        if self._authorizer is None or self.is_unlimited:
            return True
        return self._authorizer.decide(self.peer, operation, resource_type, name).allowed

    def asks(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether it may do this with a resource, as its client has asked to."""
        if self.is_unlimited or self.may(operation, resource_type, name):
            return True
        self.audit.denied(self.peer, self.api, operation.name, resource_type.name, name)
        return False

    def asks_topic(self, operation: Operation, name: str) -> bool:
        """Likewise, of a topic."""
        return self.is_unlimited or self.asks(operation, ResourceType.TOPIC, name)

    def asks_cluster(self, operation: Operation) -> bool:
        """Likewise, of the cluster."""
        return self.is_unlimited or self.asks(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def error(self, operation: Operation, resource_type: ResourceType, name: str) -> ErrorCode:
        """NONE, or the code of a refusal."""
        is_allowed = self.is_unlimited or self.asks(operation, resource_type, name)
        return ErrorCode.NONE if is_allowed else _REFUSALS[resource_type]

    def check(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raises BrokerError if the peer may not do this with a resource."""
        if not (self.is_unlimited or self.asks(operation, resource_type, name)):
            raise refusal(resource_type)

    def topic(self, operation: Operation, name: str) -> bool:
        """Whether it may do this with a topic."""
        return self.is_unlimited or self.may(operation, ResourceType.TOPIC, name)

    def topics(self, operation: Operation, names: list[str]) -> list[bool]:
        """Whether it may do this with each of some topics."""
        if self._authorizer is None or self.is_unlimited:
            return [True] * len(names)
        return self._authorizer.those_allowed(self.peer, operation, ResourceType.TOPIC, names)

    def all_topics(self, operation: Operation) -> ChoiceOfAll:
        """Says whether it may do this with every topic whose name begins so, at this moment: for
        another thread, as rules may be very many."""
        if self._authorizer is None or self.is_unlimited:
            return lambda _: True
        return self._authorizer.choice_of_all(self.peer, operation, ResourceType.TOPIC)

    def group(self, operation: Operation, name: str) -> bool:
        """Whether it may do this with a consumer group."""
        return self.is_unlimited or self.may(operation, ResourceType.GROUP, name)

    def choice(self, operation: Operation, resource_type: ResourceType) -> Choice:
        """Says of each of some resources whether it may do this with it at this moment: for another
        thread, as rules and names may be very many."""
        if self._authorizer is None or self.is_unlimited:
            return lambda names: [True] * len(names)
        return self._authorizer.choice(self.peer, operation, resource_type)

    def transactional_id(self, operation: Operation, name: str) -> bool:
        """Whether it may do this with a transactional id."""
        return self.is_unlimited or self.may(operation, ResourceType.TRANSACTIONAL_ID, name)

    def cluster(self, operation: Operation) -> bool:
        """Whether it may do this with the cluster."""
        return self.is_unlimited or self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def any_topic(self, operation: Operation) -> bool:
        """Whether there could be a topic with which it may do this."""
        if self._authorizer is None or self.is_unlimited:
            return True
        return self._authorizer.may_to_any(self.peer, operation, ResourceType.TOPIC)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """What the peer may do with a resource: the bit of each operation's code (KIP-430)."""
        allowed = (
            each for each in OPERATIONS_OF[resource_type] if self.may(each, resource_type, name)
        )
        return sum(1 << each for each in allowed)

    def cluster_operations(self) -> int:
        """What the peer may do with the cluster; nothing is told to who may not describe it."""
        if not self.cluster(Operation.DESCRIBE):
            return 0
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME)


EVERYTHING = Rights(None, Peer())
