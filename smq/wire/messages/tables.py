"""All APIs of the tables, by key."""

from smq.wire.messages.admin import ADMIN
from smq.wire.messages.data import DATA
from smq.wire.messages.groups import GROUPS
from smq.wire.messages.limits import LIMITS
from smq.wire.messages.notation import Api, parse_apis
from smq.wire.messages.operations import OPERATIONS
from smq.wire.messages.transactions import TRANSACTIONS
from smq.wire.messages.users import USERS

APIS: tuple[Api, ...] = tuple(
    sorted(
        (
            api
            for table in (DATA, ADMIN, GROUPS, OPERATIONS, TRANSACTIONS, LIMITS, USERS)
            for api in parse_apis(table)
        ),
        key=lambda api: api.key,
    )
)
