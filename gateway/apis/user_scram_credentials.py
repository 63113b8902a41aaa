"""DescribeUserScramCredentials (key 50), AlterUserScramCredentials (key 51), version 0 (KIP-554).

- Describing tells a user's mechanisms and iterations, never the keys. A user that does not exist is
  RESOURCE_NOT_FOUND, one that is named twice DUPLICATE_RESOURCE; no names ask for all users.
- A request changes one credential of a user: a second change is DUPLICATE_RESOURCE, and none is
  made. UNSUPPORTED_SASL_MECHANISM: another mechanism. UNACCEPTABLE_CREDENTIAL: no name, no
  password, iterations outside 4,096 to 16,384, a name that begins with `unix/`: these are the
  host's users.
- Who has logged in with a credential that is changed or deleted is disconnected.
"""

from collections import Counter
from collections.abc import Iterator

from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.access import AccessControl
from smq.model.errors import BrokerError, ErrorCode
from smq.security.credentials import ScramCredential, ScramMechanism, credential_of
from smq.security.published import UserCredential
from smq.security.sasl import RESERVED_PREFIX
from smq.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from smq.wire.generated.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

ITERATIONS = range(4096, 16384 + 1)
"""How names of the host's own users begin."""
PART_USERS, PART_ALTERED = 500, 150  # Per part of an answer: described, altered.
Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


def describe(
    request: DescribeUserScramCredentialsRequest, context: CoordinatorContext
) -> Iterator[DescribeUserScramCredentialsResponse]:
    """The credentials of users; answers in parts."""
    known = context.coordinator.access.credentials()
    yield DescribeUserScramCredentialsResponse()
    counts = Counter(user.name for user in request.users or ()) or Counter(sorted(known))
    yield DescribeUserScramCredentialsResponse()
    names = list(counts)
    for first in range(0, max(1, len(names)), PART_USERS):
        some = names[first : first + PART_USERS]
        yield DescribeUserScramCredentialsResponse(
            results=[_described(name, counts[name], known.get(name)) for name in some]
        )


def refuse_describing(
    request: DescribeUserScramCredentialsRequest, why: BrokerError
) -> DescribeUserScramCredentialsResponse:
    """Refuse to describe users: as Kafka does, without their names."""
    refused = DescribeUserScramCredentialsResult(error_code=why.code, error_message=None)
    return DescribeUserScramCredentialsResponse(
        error_code=why.code, error_message=None, results=[refused] * len(request.users or ())
    )


def _described(
    name: str, count: int, known: dict[ScramMechanism, ScramCredential] | None
) -> DescribeUserScramCredentialsResult:
    if count > 1:
        code, sentence = ErrorCode.DUPLICATE_RESOURCE, "The request names this user twice."
    elif known is None:
        code, sentence = ErrorCode.RESOURCE_NOT_FOUND, "There is no such user."
    else:
        infos = [
            CredentialInfo(mechanism=mechanism.value, iterations=credential.iterations)
            for mechanism, credential in known.items()
        ]
        return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=sentence)


def alter(
    request: AlterUserScramCredentialsRequest, context: CoordinatorContext
) -> Iterator[AlterUserScramCredentialsResponse]:
    """Give each user a credential, or delete one, or refuse; in parts."""
    access = context.coordinator.access
    by_user: dict[str, list[Alteration]] = {}
    for each in _alterations(request):
        by_user.setdefault(each.name, []).append(each)
    users = list(by_user.items())
    for first in range(0, max(1, len(users)), PART_ALTERED):
        some = users[first : first + PART_ALTERED]
        results = [_altered(name, changes, access) for name, changes in some]
        yield AlterUserScramCredentialsResponse(results=results)


def refuse_altering(
    request: AlterUserScramCredentialsRequest, why: BrokerError
) -> AlterUserScramCredentialsResponse:
    """Refuse to alter each user."""
    names = dict.fromkeys(each.name for each in _alterations(request))
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name, error_code=why.code, error_message=why.message
            )
            for name in names
        ]
    )


def _alterations(request: AlterUserScramCredentialsRequest) -> list[Alteration]:
    return [*request.deletions, *request.upsertions]


def _altered(
    name: str, changes: list[Alteration], access: AccessControl
) -> AlterUserScramCredentialsResult:
    try:
        wanted = _checked(changes, access)
        if isinstance(wanted, UserCredential):
            access.put_credential(wanted)
        else:
            access.delete_credential(name, wanted)
    except BrokerError as refusal:
        return AlterUserScramCredentialsResult(
            user=name, error_code=refusal.code, error_message=refusal.message
        )
    return AlterUserScramCredentialsResult(user=name, error_message=None)


def _checked(changes: list[Alteration], access: AccessControl) -> UserCredential | ScramMechanism:
    """The credential that is to be given, or the mechanism of the one to be deleted, of a user's
    only change. Raises BrokerError."""
    wanted = _checked_alone(changes[0], access)
    if len(changes) > 1:
        raise BrokerError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    return wanted


def _checked_alone(change: Alteration, access: AccessControl) -> UserCredential | ScramMechanism:
    if not change.name:
        raise _unacceptable("Username must not be empty")
    if change.mechanism not in {each.value for each in ScramMechanism}:
        raise BrokerError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    mechanism = ScramMechanism(change.mechanism)
    if isinstance(change, ScramCredentialDeletion):
        if not access.has_credential(change.name, mechanism):
            raise BrokerError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return mechanism
    if change.iterations not in ITERATIONS:
        raise _unacceptable(f"Iterations must be {ITERATIONS.start} to {ITERATIONS.stop - 1}")
    if not change.salted_password:
        raise _unacceptable("The salted password must not be empty")
    if change.name.startswith(RESERVED_PREFIX):
        raise _unacceptable(
            f"Names that begin with {RESERVED_PREFIX} are those of the host's users"
        )
    credential = credential_of(mechanism, change.salted_password, change.salt, change.iterations)
    return UserCredential(change.name, mechanism, credential)


def _unacceptable(sentence: str) -> BrokerError:
    return BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, sentence)
