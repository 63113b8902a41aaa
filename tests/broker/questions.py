"""What tests ask a broker outright, with nothing tried again behind their back."""

from smq.client.kafka.questions import Question
from smq.wire.generated.fetch import (
    FetchRequest,
    FetchResponse,
    read_fetch_response,
    write_fetch_request,
)
from smq.wire.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    read_init_producer_id_response,
    write_init_producer_id_request,
)
from smq.wire.generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    read_list_offsets_response,
    write_list_offsets_request,
)
from smq.wire.generated.produce import (
    ProduceRequest,
    ProduceResponse,
    read_produce_response,
    write_produce_request,
)

NAMES_UP_TO = 12  # Later versions of Produce and Fetch name topics by their ids.

PRODUCE = Question[ProduceRequest, ProduceResponse](
    "Produce", write_produce_request, read_produce_response, NAMES_UP_TO
)
FETCH = Question[FetchRequest, FetchResponse](
    "Fetch", write_fetch_request, read_fetch_response, NAMES_UP_TO
)
LIST_OFFSETS = Question[ListOffsetsRequest, ListOffsetsResponse](
    "ListOffsets", write_list_offsets_request, read_list_offsets_response
)
INIT_PRODUCER_ID = Question[InitProducerIdRequest, InitProducerIdResponse](
    "InitProducerId", write_init_producer_id_request, read_init_producer_id_response
)
