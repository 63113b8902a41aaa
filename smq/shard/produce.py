"""Handles the Produce requests of one recv, with a few kernel calls in all.

What would hold the loop for long is left: a request with a batch that must be inflated, and has no
room in this turn, or with more bytes than a step takes. It is finished in steps
(smq.shard.unfinished), before those that follow it on its connection.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.log.append import append_rows
from shm.kernels.log.handles import add_rule, forget_rules, new_rules
from shm.kernels.log.plan import new_plan, request_at, row_at
from shm.kernels.request.produce import (
    VERSION_MAX,
    answer_bytes_max,
    count_errors,
    parse_requests,
    produce,
    write_answers,
)
from smq.log.log import Log
from smq.model.config import Config
from smq.model.now import Now
from smq.shard.answers import LeaderOf, RefusedRecord, answers_of, nobody
from smq.shard.checks import Check, Job, Verdict
from smq.shard.plan_rows import DONE_WORDS, done_rows, first_row, request_of, rows_of
from smq.shard.references import Handles, NoFiler

LEVELS = {words.LEVEL_NONE, words.DURABILITY_MEMORY, words.DURABILITY_OS, words.DURABILITY_DISK}
# Per plan; a request that needs more is left.
REQUESTS_MAX, TOPICS_MAX, ROWS_MAX = 512, 1024, 4096
ASKED_MAX = 100  # Topics of a plan that `refuse` is asked about: smq.shard.refusals.TOPICS_MAX.
ANSWERS_BYTES = 256 * 1024


_NO_FILER = NoFiler()
_NOTHING_DONE = np.zeros((0, len(DONE_WORDS)), np.int64)


class Mark(NamedTuple):
    """How far a plan touched a log: everything lies below `position`. `level` is the highest
    durability of the partitions concerned. Duplicates count as well."""

    log: int
    position: int
    level: int


Marks: TypeAlias = tuple[Mark, ...]
# Marks what a client may not append among the batches of (data, plan).
Refuse: TypeAlias = Callable[[np.ndarray, np.ndarray], None]
# Charges a client for what is taken of a buffer, up to this place; returns the throttle time in ms
# that the answers tell it.
Charge: TypeAlias = Callable[[int], int]


def marks_of(log: Log, level: int) -> Marks:
    """The mark of a log after a plan's appends; none if the plan did not touch it."""
    return () if level == words.LEVEL_NONE else (Mark(log.number, log.tail, level),)


class Left(NamedTuple):
    """The requests in data[start:end], which are begun and not finished.

    throttle_ms   as their answers say
    done          a row of DONE_WORDS for each batch, DONE_STATE 0 where it is still to be taken
    refused       the records that were refused, by the batch's number
    marks         of what is appended
    """

    start: int
    end: int
    throttle_ms: int
    done: np.ndarray
    refused: dict[int, Sequence[RefusedRecord]]
    marks: Marks


class Produced(NamedTuple):
    """The result of a buffer. `answers` is lent until the next call, and due at the `marks`.

    `left` ends at `consumed_to`, and is answered after `answers`.
    """

    consumed_to: int
    stop: int
    answers: memoryview
    marks: Marks
    close: bool
    refused: int = 0
    left: Left | None = None


class Pending(NamedTuple):
    """A check that goes on: of a row of the plan, for a partition. `wanted` is what it waits for,
    `said` the result of that."""

    row: int
    number: int
    check: Check
    wanted: Job | None
    said: object = None


class Producing:
    """Runs the produce kernels over receive buffers.

    `drain(log)` is called when a log must be written before it can take more. `handles` checks
    batches that may hold handles. Once a partition's handles were good, the kernel has its rule and
    checks them itself until forget_rules(), to be called when the catalog changes. `leader_of`
    names the node that leads a partition elsewhere.

    With `in_steps` it serves what is left by the other one and requests with a transactional id
    (parse, append, finish), which otherwise are left to smq.shard.transactional. `before_drain` is
    called before a drain may show appended records in the middle of a request. `errors` (int64 by
    code + 1) counts those of the answers.
    """

    def __init__(  # noqa: PLR0913  (what producing needs of a shard)
        self,
        logs: dict[int, Log],
        config: Config,
        drain: Callable[[Log], None],
        handles: Handles = _NO_FILER,
        *,
        leader_of: LeaderOf = nobody,
        in_steps: bool = False,
        errors: np.ndarray | None = None,
    ) -> None:
        self._errors = errors
        self._logs = list(logs.values())
        self._drain, self._handles = drain, handles
        self._leader_of = leader_of
        self._rules, self._paths = new_rules()
        self._refused: dict[int, Sequence[RefusedRecord]] = {}  # By the rows' numbers.
        self._refused_count = 0
        self._single: np.ndarray | None = None  # A plan for one batch.
        self._request_bytes_max = config.socket_request_max_bytes
        self._takes_transactions = int(in_steps)
        self.before_drain: Callable[[Log], None] | None = None
        self.pending: Pending | None = None
        self.listener = ""  # The one that the client came through whose requests are taken.
        most = words.PLAN_ROWS_MAX if in_steps else ROWS_MAX
        self._set_plan(new_plan(REQUESTS_MAX, most if in_steps else TOPICS_MAX, most))
        self.out = self._usual_out = np.zeros(ANSWERS_BYTES, np.uint8)

    def run(  # noqa: PLR0913, PLR0917  (a buffer, and what holds for its requests)
        self,
        data: np.ndarray,
        start: int,
        end: int,
        directory: np.ndarray,
        now: Now,
        charge: Charge | None = None,
        refuse: Refuse | None = None,
    ) -> Produced:
        """Take every whole Produce request of data[start:end], up to the first other request.

        `charge` is called once, when it is known which requests are taken; `refuse`, of a client
        that may not do everything, before any of them is appended.
        """
        head = self._head
        self.begin()
        head[words.HEAD_START], head[words.HEAD_END] = start, end
        head[words.HEAD_NOW_MS], head[words.HEAD_WALL_MS] = now
        if len(self._logs) == 1 and charge is None and refuse is None:
            log = self._logs[0]
            tables = log.memory.memory, log.links, log.producers.table
            stop = produce(data, *tables, directory, self.plan, self.out)
        else:
            head[words.HEAD_PARSED] = parse_requests(data, directory, self.plan)
            self._count(int(head[words.HEAD_REQUEST_COUNT]))
            stop = words.STOP_LOG_FULL  # Not known for any log yet: look at all.
            if refuse is not None:
                left = self._leave_many()
                refuse(data, self.plan)
                return self.resume(data, stop, charge, left)
        return self.resume(data, stop, charge)

    def parse(self, data: np.ndarray, directory: np.ndarray, now: Now) -> bool:
        """Read whole requests into the plan; append() and finish() continue them.

        False: they are malformed, or have more batches than a request may have.
        """
        head = self._head
        self.begin()
        self._refused, self.pending = {}, None
        head[words.HEAD_START], head[words.HEAD_END] = 0, len(data)
        head[words.HEAD_NOW_MS], head[words.HEAD_WALL_MS] = now
        head[words.HEAD_PARSED] = parse_requests(data, directory, self.plan)
        return bool(head[words.HEAD_START] == len(data))

    def begin(self) -> None:
        """Before a kernel runs with the plan: nothing is throttled, answers begin at 0."""
        self._refused_count = self._head[words.HEAD_THROTTLE_MS] = self._head[
            words.HEAD_OUT_START
        ] = 0

    def resume(
        self, data: np.ndarray, stop: int, charge: Charge | None = None, left: Left | None = None
    ) -> Produced:
        """Finish what the kernel began with `data` and the plan, whatever stopped it. `left`: what
        has been cut off the plan."""
        head = self._head
        marks: Marks = ()
        if head[words.HEAD_PARSED] == words.STOP_PLAN_FULL and head[words.HEAD_REQUEST_COUNT] == 0:
            left = self._leave_unparsed(data)
        elif stop < words.STOP_LOG_FULL:
            return self._produced(marks_of(self._logs[0], head[words.HEAD_LEVEL]))
        else:
            marks, more = self._append_all(data)
            left = more or left
        if charge is not None:
            head[words.HEAD_THROTTLE_MS] = throttle_ms = charge(int(head[words.HEAD_START]))
            left = left and left._replace(throttle_ms=throttle_ms)
        self._answer(data)
        return self._produced(marks, left)

    def _append_all(self, data: np.ndarray) -> tuple[Marks, Left | None]:
        """Append a plan to all logs; returns the marks, and what is left."""
        head = self._head
        marks: Marks = ()
        first = count = int(head[words.HEAD_REQUEST_COUNT])
        for log in self._logs:
            marks += self.append(log, data)
            if head[words.HEAD_STOP] != 0:
                first = min(first, request_of(self.plan, head[words.HEAD_STOPPED_ROW]))
        return marks, self._leave(first, marks) if first < count else None

    def append(self, log: Log, data: np.ndarray) -> Marks:
        """Append the rest of a plan to a log, resolving what stops it; returns its mark.

        HEAD_STOP says why rows are left: STOP_STEP, STOP_CLOSED, or STOP_REFERENCES if a check is
        `pending`; 0: none is.
        """
        tables = log.memory.memory, log.links, log.producers.table
        while (reason := append_rows(*tables, data, self.plan)) != 0:
            if reason == words.STOP_LOG_FULL:
                if self.before_drain is not None:
                    self.before_drain(log)
                self._drain(log)
            elif reason in {words.STOP_STEP, words.STOP_CLOSED} or not self._check(log, data):
                break
        level, self._head[words.HEAD_LEVEL] = (
            self._head[words.HEAD_LEVEL],
            words.LEVEL_NONE,
        )  # As of the next log.
        self._head[words.HEAD_STOP] = reason
        assert level in LEVELS
        return marks_of(log, level)

    def finish(
        self,
        data: np.ndarray,
        marks: Marks,
        throttle_ms: int,
        refused: dict[int, Sequence[RefusedRecord]],
    ) -> Produced:
        """Answer the parsed requests, whose batches are all done."""
        # The kernel acks a row that was not taken as it acks the others.
        assert (rows_of(self.plan)[:, words.ROW_STATE] == words.DONE).all()
        self._head[words.HEAD_THROTTLE_MS], self._refused = throttle_ms, refused
        self._count(int(self._head[words.HEAD_REQUEST_COUNT]))
        self._answer(data)
        produced = self._produced(marks)
        self.out = self._usual_out  # What one client asked for is not kept for it.
        return produced

    @property
    def refused_count(self) -> int:
        """How many records were refused since parse()."""
        return self._refused_count

    @property
    def refused(self) -> dict[int, Sequence[RefusedRecord]]:
        """The records refused since parse(), by their batch's number."""
        return self._refused

    def _produced(self, marks: Marks, left: Left | None = None) -> Produced:
        head = self._head
        start, size = head[words.HEAD_OUT_START], head[words.HEAD_OUT_BYTES]
        assert head[words.HEAD_START] <= head[words.HEAD_END]
        assert start + size <= len(self.out)
        return Produced(
            head[words.HEAD_START],
            head[words.HEAD_PARSED],
            self.out.data[start : start + size],
            marks,
            bool(head[words.HEAD_CLOSE]),
            self._refused_count,
            left,
        )

    def _answer(self, data: np.ndarray) -> None:
        if self._refused or self._head[words.HEAD_LED_ELSEWHERE]:
            self._write_in_words(data)
            return
        while write_answers(data, self.plan, self.out) == words.STOP_OUT_FULL:
            size = max(ANSWERS_BYTES, int(answer_bytes_max(self.plan)))
            self.out, self._head[words.HEAD_OUT_START] = np.zeros(size, np.uint8), 0

    # --- what is left ----------------------------------------------------------------------------

    def _leave(self, first: int, marks: Marks) -> Left:
        """Cut the requests from `first` on off the plan: those that are begun are left, the others
        are parsed again later."""
        plan, head = self.plan, self._head
        count = int(head[words.HEAD_REQUEST_COUNT])
        last = first if len(self._logs) == 1 else count - 1  # A later log may have gone further.
        rows = slice(first_row(plan, first), first_row(plan, last + 1))
        refused = {n - rows.start: why for n, why in self._refused.items() if n >= rows.start}
        self._refused = {n: why for n, why in self._refused.items() if n < rows.start}
        start = int(plan[request_at(first) + words.REQUEST_START])
        end = int(plan[request_at(last) + words.REQUEST_END])
        done = done_rows(rows_of(plan)[rows])
        self.pending = None
        self._count(first - count)
        head[words.HEAD_START], head[words.HEAD_PARSED] = end, words.STOP_STEP
        head[words.HEAD_TOPIC_COUNT] = plan[request_at(first) + words.REQUEST_TOPIC]
        head[words.HEAD_REQUEST_COUNT], head[words.HEAD_ROW_COUNT] = first, rows.start
        return Left(start, end, 0, done, refused, marks)

    def _leave_many(self) -> Left | None:
        """Keep in the plan what has topics that may all be asked about at once: further requests
        are parsed again later. A request with too many is left."""
        plan, head = self.plan, self._head
        count = int(head[words.HEAD_REQUEST_COUNT])
        if head[words.HEAD_TOPIC_COUNT] <= ASKED_MAX:
            return None
        ends = plan[request_at(0) : request_at(count)].reshape(count, words.REQUEST_WORDS)
        ends = ends[:, words.REQUEST_TOPIC] + ends[:, words.REQUEST_TOPIC_COUNT]
        fit = int((ends <= ASKED_MAX).sum())
        self._cut(max(1, fit))
        # What is unknown is done for the parser, and refused first.
        return self._leave(0, ())._replace(done=_NOTHING_DONE) if fit == 0 else None

    def _cut(self, first: int) -> None:
        """Cut the requests from `first` on off the plan."""
        plan, head = self.plan, self._head
        count, rows = int(head[words.HEAD_REQUEST_COUNT]), first_row(self.plan, first)
        if first == count:
            return
        self._count(first - count)
        request = plan[request_at(first) :]
        head[words.HEAD_START], head[words.HEAD_PARSED] = (
            request[words.REQUEST_START],
            words.STOP_PLAN_FULL,
        )
        head[words.HEAD_TOPIC_COUNT] = request[words.REQUEST_TOPIC]
        head[words.HEAD_REQUEST_COUNT], head[words.HEAD_ROW_COUNT] = first, rows

    def _leave_unparsed(self, data: np.ndarray) -> Left:
        """Leave a request that exceeds the plan."""
        head = self._head
        start = int(head[words.HEAD_START])
        end = start + SIZE_BYTES + int.from_bytes(data[start : start + SIZE_BYTES].tobytes())
        head[words.HEAD_START], head[words.HEAD_PARSED] = end, words.STOP_STEP
        return Left(start, end, 0, _NOTHING_DONE, {}, ())

    def _count(self, requests: int) -> None:
        """Count requests as handled, as the kernel counts those that it has parsed."""
        self._logs[0].words[words.COUNTER_PRODUCE_REQUESTS] += requests

    # --- batches that are looked into ------------------------------------------------------------

    def _check(self, log: Log, data: np.ndarray) -> bool:
        """Continue the row that stopped, or refuse it; False: its check is pending."""
        plan, number = self.plan, int(self._head[words.HEAD_STOPPED_ROW])
        row = plan[row_at(plan, number) :]
        partition = int(log.partitions.table[int(row[words.ROW_CODE]) & 0xFFFFFFFF, words.P_NUMBER])
        pending, self.pending = self.pending, None
        if pending is None or (pending.row, pending.number) != (number, partition):
            now = Now(int(self._head[words.HEAD_NOW_MS]), int(self._head[words.HEAD_WALL_MS]))
            check = self._handles.check(partition, data, int(row[words.ROW_AT]), now)
            pending = Pending(number, partition, check, None)
        try:
            self.pending = pending._replace(wanted=pending.check.send(pending.said), said=None)
        except StopIteration as ended:
            self._judge(log, row, number, ended.value)
        return self.pending is None

    def _judge(self, log: Log, row: np.ndarray, number: int, verdict: Verdict) -> None:
        if verdict.instead is not None:
            self._append_instead(log, row, verdict.instead)
            return
        row[words.ROW_ERROR] = verdict.error
        row[words.ROW_STATE] = words.DONE if verdict.error else words.REFERENCES_CHECKED
        if verdict.refused:
            self._refused[number] = verdict.refused
            self._refused_count += len(verdict.refused)
        elif not verdict.error:
            code = int(row[words.ROW_CODE])
            partition = int(log.partitions.table[code & 0xFFFFFFFF, words.P_NUMBER])
            if (rule := self._handles.rule_of(partition)) is not None:
                add_rule(self._rules, self._paths, code, *rule)

    def _append_instead(self, log: Log, row: np.ndarray, batch: np.ndarray) -> None:
        """Append a replacement for a row's batch, and finish the row."""
        if self._single is None:
            self._single = new_plan(1, 1, 1)
        single, head = self._single, self._head
        inner = single[row_at(single, 0) :]
        inner[: words.ROW_WORDS] = row[: words.ROW_WORDS]
        inner[words.ROW_AT], inner[words.ROW_BYTES] = 0, len(batch)
        inner[words.ROW_STATE], inner[words.ROW_VERSION] = words.REFERENCES_CHECKED, VERSION_MAX
        for word in (words.HEAD_NOW_MS, words.HEAD_WALL_MS):
            single[word] = head[word]
        single[words.HEAD_ROW_COUNT], single[words.HEAD_LEVEL] = 1, words.LEVEL_NONE
        single[words.HEAD_BUDGET] = words.STEP_BYTES
        while append_rows(log.memory.memory, log.links, log.producers.table, batch, single):
            assert single[words.HEAD_STOP] == words.STOP_LOG_FULL, "its handles are not looked at"
            if self.before_drain is not None:
                self.before_drain(log)
            self._drain(log)
        assert inner[words.ROW_STATE] == words.DONE, "an ack for a batch that is nowhere"
        for word in (
            words.ROW_STATE,
            words.ROW_ERROR,
            words.ROW_BASE_OFFSET,
            words.ROW_APPEND_TIME,
            words.ROW_LOG_START,
        ):
            row[word] = inner[word]
        head[words.HEAD_LEVEL] = max(head[words.HEAD_LEVEL], int(single[words.HEAD_LEVEL]))

    def forget_rules(self) -> None:
        """Forget the rules: partitions may belong to other topics now, or configs have changed."""
        forget_rules(self._rules)

    def _write_in_words(self, data: np.ndarray) -> None:
        """Answer a plan with rows that were refused for their handles or are led elsewhere."""
        answers = answers_of(data, self.plan, self._refused, self._leader_of, self.listener)
        count_errors(self.plan)
        self._refused = {}
        if len(answers) > len(self.out):
            self.out = np.zeros(len(answers), np.uint8)
        self.out.data[: len(answers)] = answers
        self._head[words.HEAD_OUT_START], self._head[words.HEAD_OUT_BYTES] = 0, len(answers)

    def _set_plan(self, plan: np.ndarray) -> None:
        self.plan, self._head = plan, plan.data  # A view yields Python ints.
        plan[words.HEAD_REQUEST_BYTES_MAX] = self._request_bytes_max
        plan[words.HEAD_TRANSACTIONS] = self._takes_transactions
        plan[words.HEAD_RULES : words.HEAD_RULES + 2] = self._rules.ctypes.data, len(self._rules)
        if self._errors is not None:
            plan[words.HEAD_ERRORS : words.HEAD_ERRORS + 2] = (
                self._errors.ctypes.data,
                len(self._errors),
            )
