"""DescribeUserScramCredentials: what a broker without users says of them."""

from typing import Any

from smq.wire.generated.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.oracle.dialogues import dialogue
from tests.oracle.talk import Talk


@dialogue("DescribeUserScramCredentials")
def of_nobody(talk: Talk) -> None:
    def ask(step: str, *names: str) -> None:
        users = [UserName(name=name) for name in names]
        talk.ask(step, DescribeUserScramCredentialsRequest(users=users), trim=by_name)

    talk.ask("all", DescribeUserScramCredentialsRequest(users=None), trim=by_name)
    ask("none")
    ask("one", "alice")
    ask("one twice", "alice", "alice")
    ask("two, one of them thrice", "alice", "bob", "bob", "bob")
    ask("an empty name", "")


def by_name(answer: Any) -> None:
    """The rows come in the order of a hash table."""
    answer.results = sorted(answer.results, key=lambda each: each.user)
