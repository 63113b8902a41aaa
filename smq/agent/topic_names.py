"""SeaweedMQ's topics have a namespace and a name; Kafka's have a name.

    {kafka, x}   Kafka's topic x
    {ns, x}      Kafka's topic ns.x, which has its namespace among its configs

Without that config `ns.x` is {kafka, ns.x}: a name alone does not say where a namespace ends. So a
topic has one pair, and another pair of the same Kafka name is no topic.
"""

from typing import NamedTuple

KAFKA = "kafka"  # SeaweedMQ too has the topics of its Kafka gateway there.


class TopicName(NamedTuple):
    """A topic as SeaweedMQ names it."""

    namespace: str
    name: str

    @property
    def kafka_name(self) -> str:
        """Kafka's name of it."""
        return self.name if self.namespace == KAFKA else f"{self.namespace}.{self.name}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def named(namespace: str, name: str) -> TopicName:
    """The topic of a request; without a namespace it is Kafka's. Raises ValueError."""
    if not name:
        raise ValueError("the topic has no name")
    return TopicName(namespace or KAFKA, name)


def name_of(kafka_name: str, namespace: str) -> TopicName:
    """The pair of a topic of Kafka, from its name and the namespace that its configs say."""
    prefix = f"{namespace}."
    if namespace in {"", KAFKA} or not kafka_name.startswith(prefix) or kafka_name == prefix:
        return TopicName(KAFKA, kafka_name)
    return TopicName(namespace, kafka_name.removeprefix(prefix))
