"""What tests ask a broker outright, with nothing tried again behind their back."""

from smq.client.kafka.questions import Question
from smq.wire.generated import apis

NAMES_UP_TO = 12  # Later versions of Produce and Fetch name topics by their ids.

PRODUCE = Question(apis.PRODUCE, NAMES_UP_TO)
FETCH = Question(apis.FETCH, NAMES_UP_TO)
LIST_OFFSETS = Question(apis.LIST_OFFSETS)
INIT_PRODUCER_ID = Question(apis.INIT_PRODUCER_ID)
