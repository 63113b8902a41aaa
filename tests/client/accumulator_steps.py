"""What may happen to an accumulator in its rig, in any order, for Hypothesis."""

from hypothesis import strategies as st

from smq.client.producing.batching.answers import RETRY_MS
from smq.model.errors import ErrorCode
from tests.client.accumulator_rig import Rig

PASSING_WITHOUT_APPEND = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)
PASSING_WITH_APPEND = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS)
FOR_GOOD = ErrorCode.INVALID_TIMESTAMP

FAULTS = st.sampled_from(
    [ErrorCode.NONE] * 6 + [FOR_GOOD, *PASSING_WITHOUT_APPEND, *PASSING_WITH_APPEND]
)
ADD = st.tuples(st.just("add"), st.lists(st.integers(0, 1), min_size=1, max_size=30))
SEND = st.tuples(st.just("send"), st.lists(FAULTS, max_size=8))
SINGLE = st.tuples(st.just("single"), st.integers(0, 1))
STEPS = st.one_of(
    ADD,
    SINGLE,
    SINGLE,
    SEND,
    SEND,
    st.tuples(st.just("answer")),
    st.tuples(st.just("answer")),
    st.tuples(st.just("lose"), st.integers(0, 6)),
    st.tuples(st.just("wait")),
)


def do(rig: Rig, step: tuple[object, ...]) -> None:
    match step:
        case ("add", list(partitions)):
            rig.add(partitions)
        case ("single", int(partition)):
            rig.send_single(partition)
        case ("send", list(faults)):
            rig.drain()
            for fault, _ in zip(faults, list(rig.channel.sent), strict=False):
                rig.deliver(fault, append=fault in {ErrorCode.NONE, *PASSING_WITH_APPEND})
        case ("lose", int(delivered)):
            rig.lose(delivered)
        case ("answer",):
            rig.answer()
        case ("wait",):
            rig.now_ms += RETRY_MS
            rig.learn()


def values(rig: Rig, partition: int = 0) -> list[int]:
    return [int(each or b"") for each in rig.shard.partitions["t", partition].values()]
