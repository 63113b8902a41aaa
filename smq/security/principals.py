"""Who is at the other end of a connection.

A principal has a kind and a name and is written `User:alice`, as in Kafka's rules and settings.
"""

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """An authenticated identity."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """The principal of its written form. Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not colon:
            raise ValueError(
                f"expected a string in format principalType:principalName but got {text}"
            )
        return cls(kind, name)


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Who has not logged in, on a listener that does not ask for it."""
EVERYONE = Principal(USER, "*")
"""In a rule: every principal of the kind User."""


class Peer(NamedTuple):
    """Who is at the other end of a connection, the address it came from, and the listener it came
    to. It does not change while the connection lasts, but for its login."""

    principal: Principal = ANONYMOUS
    host: str = ""
    listener: str = ""


def parse_super_users(text: str) -> frozenset[Principal]:
    """The value of `super.users`: principals, separated by semicolons. Raises ValueError."""
    return frozenset(Principal.parse(part) for each in text.split(";") if (part := each.strip()))
