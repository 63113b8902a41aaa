"""InitProducerId of a producer whose transaction was aborted by others."""

from smq.wire.generated.init_producer_id import InitProducerIdRequest
from tests.oracle.dialogues import dialogue
from tests.oracle.dialogues.transactions import begin, open_, settled
from tests.oracle.talk import Talk


@dialogue("InitProducerId", since=3)
def begun_again_by_the_first(talk: Talk) -> None:
    """Its transaction is aborted, as if it had timed out: it goes on until another has begun."""
    topic = talk.make_topic()
    first = begin(talk)
    open_(talk, first, topic)
    another = InitProducerIdRequest(transactional_id=first.name, transaction_timeout_ms=60_000)
    again = InitProducerIdRequest(
        transactional_id=first.name,
        transaction_timeout_ms=60_000,
        producer_id=first.id,
        producer_epoch=first.epoch,
    )
    talk.ask("another asks", another)
    settled(talk, first)
    talk.ask("the first begins", again)
    talk.ask("once more", again)
    talk.ask("another begins", another)
    talk.ask("the first is late", again)
