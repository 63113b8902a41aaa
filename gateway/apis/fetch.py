"""Fetch (key 1), versions 4-18.

- Whole batches from the one that holds the offset on, below the high watermark; a batch may begin
  before the offset: clients skip what they did not ask for.
- max_bytes and partition_max_bytes are soft: the first partition that has anything gets a whole
  batch, however large (KIP-74). Below zero they are UNKNOWN_SERVER_ERROR; so is an isolation level
  above 1, for the whole request.
- read_committed: below the last stable offset, with the aborted transactions that overlap what is
  returned (gateway.fetch.in_log); null when uncommitted records are read too.
- Long poll: with less than min_bytes we wait for max_wait_ms, WAIT_MS_MAX at most, unless a
  partition has an error.
- Offsets below the log start or above the log end: OFFSET_OUT_OF_RANGE.
- A stale or unknown current_leader_epoch: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH (9, KIP-320).
- last_fetched_epoch reveals a truncated log: diverging_epoch (12, KIP-595); an epoch that is not
  known yet is OFFSET_OUT_OF_RANGE.
- Where a topic says smq.reference.delivery=inline, batches with handles come from the sealer's
  reader too, with payloads as values where they fit.
- Offsets that have left the WAL come from sealed segments, for few partitions per answer.
- Topic ids instead of names from 13 (KIP-516): UNKNOWN_TOPIC_ID.
- From 16: with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH the leader and its address (KIP-951).
- A topic that is named twice gets one row. A partition that is named twice: the last entry counts.
  A topic without partitions gets no row.
- Follower fetches get NOT_LEADER_OR_FOLLOWER: there is no replication yet.

Left out: fetching from followers (KIP-392); there are none.

A kernel answers the frequent ones (gateway.quick_fetch), and all that it leaves comes here. The
rules, the answer, sessions (KIP-227) and the portions of large requests are gateway.fetch.
"""

from collections.abc import Callable, Iterator

from gateway.context import Result, ShardContext, Step, Wait
from gateway.fetch.answer import Fetching
from gateway.fetch.portions import LargeFetch
from gateway.fetch.session import Beginning, enter, is_incremental
from shm.kernels.request.fetch import WAIT_MS_MAX
from smq.wire.generated.fetch import FetchRequest, FetchResponse
from smq.wire.portions import Portion


def handle(request: FetchRequest, context: ShardContext) -> Result:
    """Answer within a session, or without one: now, after the sealer has, or when there is more."""
    if is_incremental(request):
        incremental = enter(request, context)
        if isinstance(incremental, FetchResponse):
            return incremental
        incremental.change(request)
        incremental.forget(request)
        return incremental.answer()
    fetch = Fetching(request, context, Beginning(request, context).answered)
    result = fetch.attempt(is_last=request.max_wait_ms <= 0 or not fetch.topics)
    if result is not None:
        return result
    wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
    return Wait(lambda: list(fetch.places), wait_ms, fetch.attempt, fetch.moved)


def in_parts(portions: Callable[[], Iterator[Portion]], context: ShardContext) -> Iterator[Step]:
    """The steps of a request that is too large to be handled whole."""
    return LargeFetch(portions, context).steps()
