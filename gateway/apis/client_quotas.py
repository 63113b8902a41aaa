"""DescribeClientQuotas (key 48) and AlterClientQuotas (key 49), versions 0-1 (KIP-546).

- Entities are users, client ids, users with client ids, and addresses; a null name is the default.
  smq.model.client_quotas says which quota holds for whom.
- Describing filters by exact names, defaults or any name of a type; strictly, entities with other
  types as well are left out. The parts of an entity and its values stand in a fixed order. A
  repeated or empty type is INVALID_REQUEST, one that Kafka does not know either
  UNSUPPORTED_VERSION.
- Each entry of a change is carried out or refused as a whole: INVALID_REQUEST for an entity or a
  quota that does not exist, or for an invalid value.
- The answer goes out once the quotas are in the catalog, from which every shard reads.
"""

from collections import Counter
from collections.abc import Callable

from gateway.apis.configs.entries import invalid
from gateway.coordinator_context import CoordinatorContext
from smq.model.catalog import QUOTA
from smq.model.client_quotas import (
    ENTITY_TYPES,
    IP,
    Entity,
    entity_of,
    entity_problem,
    key_of,
    names_of,
    problem_of,
)
from smq.model.errors import BrokerError, ErrorCode
from smq.store.config_changes import Changer
from smq.wire.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
    AlteredEntry,
    QuotaEntity,
    QuotaEntry,
)
from smq.wire.generated.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntity,
    DescribedEntry,
    ValueData,
)

EXACT, DEFAULT, ANY = range(3)
Matches = Callable[[Entity], bool]


def describe(
    request: DescribeClientQuotasRequest, context: CoordinatorContext
) -> DescribeClientQuotasResponse:
    """The quotas of all entities that match."""
    try:
        matches = _filter(request)
    except BrokerError as refusal:
        return DescribeClientQuotasResponse(
            error_code=refusal.code, error_message=refusal.message, entries=None
        )
    settings = context.coordinator.settings
    found = [(entity_of(key), settings.configs(QUOTA, key)) for key in settings.names(QUOTA)]
    return DescribeClientQuotasResponse(
        error_message="",
        entries=[
            DescribedEntry(
                entity=[
                    DescribedEntity(entity_type=kind, entity_name=entity[kind])
                    for kind in ENTITY_TYPES
                    if kind in entity
                ],
                values=[
                    ValueData(key=name, value=float(quotas[name]))
                    for name in names_of(entity)
                    if name in quotas
                ],
            )
            for entity, quotas in found
            if matches(entity)
        ],
    )


def refuse_describing(
    _request: DescribeClientQuotasRequest, why: BrokerError
) -> DescribeClientQuotasResponse:
    """Describe nothing: as Kafka does, without a sentence."""
    return DescribeClientQuotasResponse(error_code=why.code, error_message=None, entries=None)


def _filter(request: DescribeClientQuotasRequest) -> Matches:
    wanted: dict[str, ComponentData] = {}
    for each in request.components:
        _check(each)
        if each.entity_type in wanted:
            raise invalid(f"Entity type {each.entity_type} cannot appear more than once.")
        wanted[each.entity_type] = each
    if IP in wanted and len(wanted) > 1:
        raise invalid("Entity type 'ip' cannot stand beside others.")

    def matches(entity: Entity) -> bool:
        if request.strict and entity.keys() != wanted.keys():
            return False
        return all(kind in entity and _fits(entity[kind], each) for kind, each in wanted.items())

    return matches


def _check(component: ComponentData) -> None:
    if not component.entity_type:
        raise invalid("Unexpected empty filter component entity type")
    if component.entity_type not in ENTITY_TYPES:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Custom entity type {component.entity_type} not supported",
        )
    if component.match_type not in {EXACT, DEFAULT, ANY}:
        raise invalid(f"Unexpected match type: {component.match_type}")
    if (component.match_type == EXACT) != (component.match is not None):
        raise invalid("A name is to be given for an exact match, and for no other.")


def _fits(name: str | None, component: ComponentData) -> bool:
    if component.match_type == EXACT:
        return name == component.match
    return component.match_type == ANY or name is None


def alter(
    request: AlterClientQuotasRequest, context: CoordinatorContext
) -> AlterClientQuotasResponse:
    """Change quotas of entities, each entry as a whole or not at all."""
    counts = Counter(_key(each) for each in request.entries)
    client = context.header.client_id or "", context.client_host
    by = Changer(*client, context.now.wall_ms)
    entries = []
    for each in request.entries:
        result = AlteredEntry(error_message=None, entity=_entity(each))
        try:
            if counts[_key(each)] > 1:
                raise invalid("Each entity must appear at most once.")
            _alter(each, by, context, validate_only=request.validate_only)
        except BrokerError as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message
        entries.append(result)
    if not request.validate_only:
        context.coordinator.take_settings()
    return AlterClientQuotasResponse(entries=entries)


def refuse_altering(
    request: AlterClientQuotasRequest, why: BrokerError
) -> AlterClientQuotasResponse:
    """Refuse each entry."""
    return AlterClientQuotasResponse(
        entries=[
            AlteredEntry(error_code=why.code, error_message=why.message, entity=_entity(each))
            for each in request.entries
        ]
    )


def _entity(entry: QuotaEntry) -> list[AlteredEntity]:
    return [
        AlteredEntity(entity_type=part.entity_type, entity_name=part.entity_name)
        for part in sorted(entry.entity, key=_place_in_entity)
    ]


def _place_in_entity(part: QuotaEntity) -> int:
    known = part.entity_type in ENTITY_TYPES
    return ENTITY_TYPES.index(part.entity_type) if known else len(ENTITY_TYPES)


def _key(entry: QuotaEntry) -> str:
    return key_of({part.entity_type: part.entity_name for part in entry.entity})


def _alter(
    entry: QuotaEntry, by: Changer, context: CoordinatorContext, *, validate_only: bool
) -> None:
    entity = {part.entity_type: part.entity_name for part in entry.entity}
    _check_entity(entity, len(entry.entity))
    names, settings = names_of(entity), context.coordinator.settings
    quotas = dict(settings.configs(QUOTA, key_of(entity)))
    for op in entry.ops:
        if op.key not in names:
            raise invalid(f"Invalid configuration key {op.key}")
        if op.remove:
            quotas.pop(op.key, None)
            continue
        problem = problem_of(op.key, op.value)
        if problem:
            raise invalid(problem)
        quotas[op.key] = repr(op.value)
    settings.configure(QUOTA, key_of(entity), quotas, by, validate_only=validate_only)


def _check_entity(entity: Entity, part_count: int) -> None:
    if len(entity) < part_count:
        raise invalid("Invalid client quota entity, a type comes twice")
    problem = entity_problem(entity)
    if problem:
        raise invalid(problem)
