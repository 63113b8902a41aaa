"""What is in each message of each version, as a table; the codecs are generated from it.

The facts are Apache Kafka 4.3's (https://kafka.apache.org/protocol). After a change run
`python -m smq.wire.generate`; `smq.wire.messages.notation` explains how to read the lines.
"""

from smq.wire.messages.admin import ADMIN
from smq.wire.messages.data import DATA
from smq.wire.messages.groups import GROUPS
from smq.wire.messages.notation import Api, parse_apis

APIS: tuple[Api, ...] = tuple(
    sorted(parse_apis(DATA) + parse_apis(ADMIN) + parse_apis(GROUPS), key=lambda api: api.key)
)
