"""Client quotas (KIP-13, KIP-124, KIP-546, KIP-599, KIP-612): their clients and their values.

An entity is a set of (type, name); the name None is the default of its type. A user is the name of
who has logged in; without a login that is ANONYMOUS. The quota of a client is the first of these
that has one, as in Kafka:

    (user, client-id)  (user, default client)  (user)
    (default user, client-id)  (default user, default client)  (default user)
    (client-id)  (default client)

A quota of a user and a client applies to that pair, a user's quota to all of its clients. Who names
no client id is no default client: as in Kafka, only a user's quota is his.
"""

import json
import math
from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple

USER, CLIENT, IP = "user", "client-id", "ip"
ENTITY_TYPES = CLIENT, USER, IP  # In the order of an answer.

PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
REQUEST_TIME, MUTATIONS = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
CLIENT_QUOTAS = PRODUCE, CONSUME, MUTATIONS, REQUEST_TIME  # In the order of an answer.
IP_QUOTAS = (CONNECTIONS,)
WHOLE_QUOTAS = PRODUCE, CONSUME, CONNECTIONS  # Kafka's LONG and INT; the others are DOUBLE.

NAME_CHARACTERS_MAX = 255

Entity = Mapping[str, str | None]
Quotas = Mapping[str, Mapping[str, str]]
"""As stored and published: by the entity's key, then by the quota's name."""


def key_of(entity: Entity) -> str:
    """An entity as one text."""
    return json.dumps(sorted(entity.items()))


def entity_of(key: str) -> dict[str, str | None]:
    """The entity of a key."""
    return dict(json.loads(key))


def names_of(entity: Entity) -> tuple[str, ...]:
    """The quotas that an entity may have; none: there is no such entity."""
    if entity.keys() == {IP}:
        return IP_QUOTAS
    return CLIENT_QUOTAS if entity and entity.keys() <= {USER, CLIENT} else ()


def entity_problem(entity: Entity) -> str:
    """Why there is no such entity, or ""."""
    if not entity:
        return "Invalid empty client quota entity"
    for kind, name in entity.items():
        if kind not in ENTITY_TYPES:
            return f"Unhandled client quota entity type: {kind}"
        if name is not None and not 0 < len(name) <= NAME_CHARACTERS_MAX:
            return f"A name of a {kind} has 1 to {NAME_CHARACTERS_MAX} characters"
        if kind == IP and name is not None and not _is_address(name):
            return f"{name} is not an IP address"
    if not names_of(entity):
        return "Invalid quota entity combination: 'ip' cannot stand beside others"
    return ""


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def problem_of(name: str, value: float) -> str:
    """Why a quota may not have a value, or ""."""
    least = 0 if name == CONNECTIONS else math.ulp(0.0)
    if not math.isfinite(value) or value < least:
        return f"Quota {name} must be greater than 0"
    if name in WHOLE_QUOTAS and value != int(value):
        return f"Quota {name} must be a whole number"
    return ""


class Limit(NamedTuple):
    """The effective quota of a client, and the key of the bucket that shares it."""

    value: float
    shared: tuple[str, ...]


def limit_of(quotas: Quotas, name: str, user: str, client_id: str) -> Limit | None:
    """The quota of a user's client; None: it has none."""
    users: tuple[dict[str, str | None], ...] = ({USER: user}, {USER: None}, {})
    clients: tuple[dict[str, str | None], ...] = ({CLIENT: client_id}, {CLIENT: None}, {})
    for of_user in users:
        for of_client in clients if client_id else clients[-1:]:
            found = quotas.get(key_of({**of_user, **of_client}), {}).get(name)
            if found is not None:
                shares_user = (USER, user) if of_user else ()
                shares_client = (CLIENT, client_id) if of_client else ()
                return Limit(float(found), (name, *shares_user, *shares_client))
    return None


def connection_limit_of(quotas: Quotas, ip: str) -> float | None:
    """How many connections an address may make per second; None: any number. One of IPv6 may be
    named in its short form, too."""
    short = str(ip_address(ip)) if ":" in ip else ip
    for name in (ip, short, None):
        found = quotas.get(key_of({IP: name}), {}).get(CONNECTIONS)
        if found is not None:
            return float(found)
    return None
