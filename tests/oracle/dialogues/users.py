"""SCRAM credentials: given, changed, deleted, described; and what is refused."""

from typing import Any

from smq.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion as Deletion,
    ScramCredentialUpsertion as Upsertion,
)
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

    ask("one", "alice")
    ask("one twice", "alice", "alice")
    ask("two, one of them thrice", "alice", "bob", "bob", "bob")
    ask("an empty name", "")


def by_name(answer: Any) -> None:
    """The rows come in the order of a hash table."""
    answer.results = sorted(answer.results, key=lambda each: each.user)


SHA_256, SHA_512 = 1, 2


class Users:
    """Asks for changes of users whose names no other dialogue has, then describes them."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    def give(
        self,
        name: str,
        mechanism: int = SHA_256,
        iterations: int = 4096,
        salt: bytes = b"salt",
        salted_password: bytes = bytes(32),
    ) -> Upsertion:
        return Upsertion(
            name=name and self._talk.own(name),
            mechanism=mechanism,
            iterations=iterations,
            salt=salt,
            salted_password=salted_password,
        )

    def take(self, name: str, mechanism: int = SHA_256) -> Deletion:
        return Deletion(name=name and self._talk.own(name), mechanism=mechanism)

    def alter(self, step: str, *changes: Upsertion | Deletion) -> None:
        request = AlterUserScramCredentialsRequest(
            deletions=[each for each in changes if isinstance(each, Deletion)],
            upsertions=[each for each in changes if isinstance(each, Upsertion)],
        )
        self._talk.ask(step, request, trim=by_name)

    def describe(self, step: str, *names: str) -> None:
        users = [UserName(name=self._talk.own(name)) for name in names]
        answer = self._talk.quietly(DescribeUserScramCredentialsRequest(users=users))
        found = sorted(answer.results, key=lambda each: each.user)
        infos = [
            sorted((info.mechanism, info.iterations) for info in each.credential_infos)
            for each in found
        ]
        rows = zip(found, infos, strict=True)
        self._talk.note(step, [[each.error_code, *map(list, info)] for each, info in rows])


@dialogue("AlterUserScramCredentials")
def given_and_taken(talk: Talk) -> None:
    users = Users(talk)
    users.alter("nothing")
    users.alter("one", users.give("a"))
    users.describe("one: described", "a", "b")
    users.alter("another mechanism", users.give("a", SHA_512, 8192))
    users.alter("in place of the first", users.give("a", iterations=16384), users.give("b"))
    users.describe("both: described", "a", "b")
    users.alter("one is taken", users.take("a"))
    users.describe("one is taken: described", "a", "b")
    users.alter("all are taken", users.take("a", SHA_512), users.take("b"))
    users.describe("all are taken: described", "a", "b")


@dialogue("AlterUserScramCredentials")
def refused(talk: Talk) -> None:
    users = Users(talk)
    users.alter("to take what is not there", users.take("a"))
    users.alter("too few iterations", users.give("a", iterations=4095))
    users.alter("too many iterations", users.give("a", iterations=16385))
    users.alter("mechanism 0", users.give("a", 0))
    users.alter("mechanism 3", users.give("a", 3))
    users.alter("to take mechanism 3", users.take("a", 3))
    users.alter("no name", users.give(""))
    users.alter("to take no name", users.take(""))
    users.alter("twice", users.give("a"), users.give("a", iterations=5000))
    users.alter("given and taken", users.give("a"), users.take("a"))
    users.alter("two mechanisms, one of them bad", users.give("a"), users.give("a", 3))
    users.alter("two mechanisms, one is not there", users.give("a"), users.take("a", SHA_512))
    users.alter("a good one and a bad one", users.give("b"), users.give("a", 3))
    users.alter("no salt", users.give("c", salt=b""))
    users.alter("no password", users.give("d", salted_password=b""))
    users.alter("a short password", users.give("e", salted_password=b"x"))
    users.describe("described", "a", "b", "c", "d", "e")
