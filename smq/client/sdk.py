"""Everything that `import smq` offers: one list of names."""
# ruff: noqa: PLC0414  (An alias of the same name says: offered here.)

from smq.client.aio import (
    AsyncClient as AsyncClient,
    AsyncProducer as AsyncProducer,
    connect_async as connect_async,
)
from smq.client.client import Client as Client, connect as connect
from smq.client.consuming.aio_consumer import AsyncConsumer as AsyncConsumer
from smq.client.consuming.batch.batch import Batch as Batch
from smq.client.consuming.batch.chunk import Record as Record
from smq.client.consuming.consumer import Consumer as Consumer
from smq.client.consuming.statistics import ConsumerStatistics as ConsumerStatistics
from smq.client.errors import (
    AuthenticationFailed as AuthenticationFailed,
    BatchReleased as BatchReleased,
    BatchTooLarge as BatchTooLarge,
    BrokerUnavailable as BrokerUnavailable,
    Closed as Closed,
    NoSuchTopic as NoSuchTopic,
    Overrun as Overrun,
    PayloadDamaged as PayloadDamaged,
    PayloadMissing as PayloadMissing,
    ProducerFenced as ProducerFenced,
    RecordTooLarge as RecordTooLarge,
    ReferenceRejected as ReferenceRejected,
    TransactionAborted as TransactionAborted,
    UnreadableBatch as UnreadableBatch,
)
from smq.client.kafka.offset_facts import PartitionOffsets as PartitionOffsets
from smq.client.names import TopicPartition as TopicPartition
from smq.client.producing.delivery.delivery_state import (
    Deliveries as Deliveries,
    Delivery as Delivery,
)
from smq.client.producing.delivery.futures import (
    BatchFuture as BatchFuture,
    BufferFull as BufferFull,
    Future as Future,
)
from smq.client.producing.producer import Producer as Producer
from smq.client.producing.transactions.transaction import Transaction as Transaction
from smq.client.reference import Payload as Payload
from smq.filer.content import SourceChanged as SourceChanged
from smq.model.errors import BrokerError as BrokerError, StoreError as StoreError
from smq.model.offset_types import OffsetType as OffsetType, WantedPlace as WantedPlace
from smq.model.references import Reference as Reference
