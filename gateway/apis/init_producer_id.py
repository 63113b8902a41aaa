"""InitProducerId (key 22), versions 0-5.

- Without a transactional id: a producer id that nobody had, with epoch 0. What the client brings
  (3, KIP-360) changes nothing, as in Kafka: an idempotent producer bumps its epoch by itself; but
  one of id and epoch without the other is INVALID_REQUEST.
- An empty transactional id is INVALID_REQUEST.

Left out: transactions. A transactional id is UNSUPPORTED_VERSION, which clients take for fatal: a
code that makes them try again would only make them wait.
"""

from gateway.coordinator_context import CoordinatorContext
from smq.model.errors import ErrorCode
from smq.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NONE = -1


def handle(request: InitProducerIdRequest, context: CoordinatorContext) -> InitProducerIdResponse:
    """Give a producer its id."""
    error = _problem(request)
    if error is not ErrorCode.NONE:
        return InitProducerIdResponse(error_code=error, producer_epoch=NONE)
    return InitProducerIdResponse(
        producer_id=context.coordinator.producer_ids.next(), producer_epoch=0
    )


def _problem(request: InitProducerIdRequest) -> ErrorCode:
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is None:
        return ErrorCode.NONE
    return ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
