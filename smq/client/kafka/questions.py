"""The questions that the SDK asks of brokers: one table, an API in the versions that we speak."""

from typing import Generic

from smq.wire.api import Request, Response, WireApi
from smq.wire.generated import apis

# A partition takes some 40 bytes of Metadata, and ten times as much once it is read.
ANSWER_BYTES_MAX = 32 * 1024 * 1024
RECORDS_BYTES_MAX = 256 * 1024 * 1024  # Of a fetch, whose records stay as they are.


class Question(Generic[Request, Response]):
    """An API as the SDK uses it: `version_max` is by default the newest that SMQ itself knows."""

    def __init__(
        self,
        api: WireApi[Request, Response],
        version_max: int | None = None,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        self.api, self.answer_bytes_max = api, answer_bytes_max
        self.version_max = api.last_version if version_max is None else version_max


API_VERSIONS = Question(apis.API_VERSIONS)
SASL_HANDSHAKE = Question(apis.SASL_HANDSHAKE)
SASL_AUTHENTICATE = Question(apis.SASL_AUTHENTICATE, answer_bytes_max=64 * 1024)
METADATA = Question(apis.METADATA)
CREATE_TOPICS = Question(apis.CREATE_TOPICS)
DELETE_TOPICS = Question(apis.DELETE_TOPICS)
CREATE_PARTITIONS = Question(apis.CREATE_PARTITIONS)
DELETE_RECORDS = Question(apis.DELETE_RECORDS)
INCREMENTAL_ALTER_CONFIGS = Question(apis.INCREMENTAL_ALTER_CONFIGS)
DESCRIBE_CONFIGS = Question(apis.DESCRIBE_CONFIGS)
DESCRIBE_ACLS = Question(apis.DESCRIBE_ACLS)
CREATE_ACLS = Question(apis.CREATE_ACLS)
DELETE_ACLS = Question(apis.DELETE_ACLS)
DESCRIBE_USER_SCRAM_CREDENTIALS = Question(apis.DESCRIBE_USER_SCRAM_CREDENTIALS)
ALTER_USER_SCRAM_CREDENTIALS = Question(apis.ALTER_USER_SCRAM_CREDENTIALS)
LIST_OFFSETS = Question(apis.LIST_OFFSETS)
FETCH = Question(
    apis.FETCH, version_max=13, answer_bytes_max=RECORDS_BYTES_MAX
)  # The first with topic ids instead of names; later ones are for brokers.
FETCH_BY_NAME = Question(
    apis.FETCH, version_max=12, answer_bytes_max=RECORDS_BYTES_MAX
)  # The last with names, for brokers that know no topic ids.
PRODUCE = Question(apis.PRODUCE, version_max=12)  # The last with names instead of topic ids.
INIT_PRODUCER_ID = Question(apis.INIT_PRODUCER_ID)
FIND_COORDINATOR = Question(
    apis.FIND_COORDINATOR, version_max=3
)  # Later ones ask for several groups at once.
LIST_GROUPS = Question(apis.LIST_GROUPS)
DESCRIBE_GROUPS = Question(apis.DESCRIBE_GROUPS)
DELETE_GROUPS = Question(apis.DELETE_GROUPS)
JOIN_GROUP = Question(apis.JOIN_GROUP)
SYNC_GROUP = Question(apis.SYNC_GROUP)
HEARTBEAT = Question(apis.HEARTBEAT)
LEAVE_GROUP = Question(apis.LEAVE_GROUP)
OFFSET_DELETE = Question(apis.OFFSET_DELETE)
OFFSET_FETCH = Question(
    apis.OFFSET_FETCH, version_max=7
)  # Later ones ask for several groups at once.
OFFSET_COMMIT = Question(
    apis.OFFSET_COMMIT, version_max=8
)  # Later ones are for groups of the consumer protocol.
OFFSET_COMMIT_BY_ID = Question(apis.OFFSET_COMMIT)  # From 10: for brokers of our own version.
ADD_PARTITIONS_TO_TXN = Question(
    apis.ADD_PARTITIONS_TO_TXN, version_max=3
)  # Later ones are for brokers.
ADD_OFFSETS_TO_TXN = Question(apis.ADD_OFFSETS_TO_TXN)
TXN_OFFSET_COMMIT = Question(
    apis.TXN_OFFSET_COMMIT, version_max=4
)  # Later ones add the group to the transaction.
END_TXN = Question(apis.END_TXN)
