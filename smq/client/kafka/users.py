"""Lists a broker's users, and gives and takes their SCRAM credentials."""

from collections.abc import Iterable

from smq.client.kafka.answers import only
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.questions import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from smq.security.credentials import SaltedPassword
from smq.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from smq.wire.generated.describe_user_scram_credentials import DescribeUserScramCredentialsRequest


def users(cluster: Cluster) -> dict[str, dict[int, int]]:
    """The iterations of each user's credentials, by Kafka's number of the mechanism. Raises
    BrokerError."""
    request = DescribeUserScramCredentialsRequest(users=None)
    answer = cluster.anyone().ask(DESCRIBE_USER_SCRAM_CREDENTIALS, request)
    check(answer.error_code, answer.error_message)
    return {
        row.user: {info.mechanism: info.iterations for info in row.credential_infos}
        for row in answer.results
    }


def give(cluster: Cluster, user: str, passwords: Iterable[SaltedPassword]) -> None:
    """Give a user passwords, each in place of the one of its mechanism. Raises BrokerError."""
    for each in passwords:  # A request changes one of a user.
        given = ScramCredentialUpsertion(
            name=user,
            mechanism=each.mechanism.value,
            iterations=each.iterations,
            salt=each.salt,
            salted_password=each.salted,
        )
        _alter(cluster, AlterUserScramCredentialsRequest(upsertions=[given]))


def take(cluster: Cluster, user: str, mechanisms: Iterable[int]) -> None:
    """Delete a user's credentials of these mechanisms. Raises BrokerError."""
    for mechanism in mechanisms:
        gone = ScramCredentialDeletion(name=user, mechanism=mechanism)
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=[gone]))


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    result = only(cluster.anyone().ask(ALTER_USER_SCRAM_CREDENTIALS, request).results, "user")
    check(result.error_code, result.error_message)
