"""All APIs of the tables, by key."""

from smq.wire.messages.admin import ADMIN
from smq.wire.messages.data import DATA
from smq.wire.messages.groups import GROUPS
from smq.wire.messages.notation import Api, parse_apis

APIS: tuple[Api, ...] = tuple(
    sorted(parse_apis(DATA) + parse_apis(ADMIN) + parse_apis(GROUPS), key=lambda api: api.key)
)
