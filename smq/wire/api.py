"""The Kafka APIs with codecs, and their versions."""

from typing import NamedTuple

from smq.wire.generated.apis import APIS


class ApiFacts(NamedTuple):
    """The versions of an API, and the first flexible one."""

    key: int
    name: str
    first_version: int
    last_version: int
    flexible_from: int


API_BY_KEY: dict[int, ApiFacts] = {facts[0]: ApiFacts(*facts) for facts in APIS}
API_BY_NAME: dict[str, ApiFacts] = {facts.name: facts for facts in API_BY_KEY.values()}

API_VERSIONS_KEY = API_BY_NAME["ApiVersions"].key
