"""Handles the Produce requests of one recv, with a few kernel calls in all."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from shm.kernels.base.words import DURABILITY_DISK, DURABILITY_MEMORY, DURABILITY_OS, P_NUMBER
from shm.kernels.log.append import append_rows
from shm.kernels.log.handles import add_rule, forget_rules, new_rules
from shm.kernels.log.plan import (
    DONE,
    HEAD_CLOSE,
    HEAD_END,
    HEAD_ERRORS,
    HEAD_LED_ELSEWHERE,
    HEAD_LEVEL,
    HEAD_NOW_MS,
    HEAD_OUT_BYTES,
    HEAD_OUT_START,
    HEAD_PARSED,
    HEAD_REQUEST_BYTES_MAX,
    HEAD_REQUEST_COUNT,
    HEAD_ROW_CAPACITY,
    HEAD_ROW_COUNT,
    HEAD_RULES,
    HEAD_START,
    HEAD_STOP,
    HEAD_STOPPED_ROW,
    HEAD_THROTTLE_MS,
    HEAD_TRANSACTIONS,
    HEAD_WALL_MS,
    LEVEL_NONE,
    REFERENCES_CHECKED,
    ROW_APPEND_TIME,
    ROW_AT,
    ROW_BASE_OFFSET,
    ROW_BYTES,
    ROW_CODE,
    ROW_ERROR,
    ROW_LOG_START,
    ROW_STATE,
    ROW_VERSION,
    ROW_WORDS,
    ROWS_MAX as PLAN_ROWS_MAX,
    STOP_LOG_FULL,
    STOP_OUT_FULL,
    STOP_PLAN_FULL,
    STOP_REFERENCES,
    new_plan,
    row_at,
)
from shm.kernels.request.produce import (
    VERSION_MAX,
    count_errors,
    parse_requests,
    produce,
    write_answers,
)
from smq.log.log import Log
from smq.model.config import Config
from smq.model.now import Now
from smq.shard.answers import LeaderOf, RefusedRecord, answers_of, nobody
from smq.shard.references import Handles, NoFiler
from smq.shard.throttle import Throttle

LEVELS = {LEVEL_NONE, DURABILITY_MEMORY, DURABILITY_OS, DURABILITY_DISK}
# Per plan; a request that needs more gets a larger plan of its own.
REQUESTS_MAX, TOPICS_MAX, ROWS_MAX = 512, 1024, 4096
ANSWERS_BYTES = 256 * 1024


_NO_FILER = NoFiler()


class Mark(NamedTuple):
    """How far a plan touched a log: everything lies below `position`. `level` is the highest
    durability of the partitions concerned. Duplicates count as well."""

    log: int
    position: int
    level: int


Marks: TypeAlias = tuple[Mark, ...]


def marks_of(log: Log, level: int) -> Marks:
    """The mark of a log after a plan's appends; none if the plan did not touch it."""
    return () if level == LEVEL_NONE else (Mark(log.number, log.tail, level),)


class Produced(NamedTuple):
    """The result of a buffer. `answers` is lent until the next call, and due at the `marks`."""

    consumed_to: int
    stop: int
    answers: memoryview
    marks: Marks
    close: bool
    refused: int = 0


class Producing:
    """Runs the produce kernels over receive buffers.

    `drain(log)` is called when a log must be written before it can take more. Answers carry the
    delay of `throttle`; the caller of run() reads no more for that long. `handles` checks batches
    that may hold handles. Once a partition's handles were good, the kernel has its rule and checks
    them itself until forget_rules(), to be called when the catalog changes. `leader_of` names the
    node that leads a partition elsewhere.

    With `transactional` it serves requests with a transactional id, one at a time (parse, resume);
    otherwise it leaves them to smq.shard.transactional. `before_drain` is called before a drain may
    show appended records in the middle of a request. `errors` (int64 by code + 1)
    counts those of the answers.
    """

    def __init__(  # noqa: PLR0913  (what producing needs of a shard)
        self,
        logs: dict[int, Log],
        config: Config,
        drain: Callable[[Log], None],
        throttle: Throttle,
        handles: Handles = _NO_FILER,
        *,
        leader_of: LeaderOf = nobody,
        transactional: bool = False,
        errors: np.ndarray | None = None,
    ) -> None:
        self._errors = errors
        self._logs = list(logs.values())
        self._drain, self._throttle, self._handles = drain, throttle, handles
        self._leader_of = leader_of
        self._rules, self._paths = new_rules()
        self._refused: dict[int, Sequence[RefusedRecord]] = {}  # By the rows' numbers.
        self._refused_count = 0
        self._single: np.ndarray | None = None  # A plan for one batch.
        self._request_bytes_max = config.socket_request_max_bytes
        self._takes_transactions = int(transactional)
        self.before_drain: Callable[[Log], None] | None = None
        if transactional:
            self._set_plan(new_plan(1, PLAN_ROWS_MAX, PLAN_ROWS_MAX))
        else:
            self._set_plan(new_plan(REQUESTS_MAX, TOPICS_MAX, ROWS_MAX))
        self.out = np.zeros(ANSWERS_BYTES, np.uint8)

    def run(  # noqa: PLR0913, PLR0917  (a buffer, and what holds for its requests)
        self,
        data: np.ndarray,
        start: int,
        end: int,
        directory: np.ndarray,
        now: Now,
        quota_ms: int = 0,
    ) -> Produced:
        """Take every whole Produce request of data[start:end], up to the first other request.

        `quota_ms` is the client's wait for its quota.
        """
        head, throttle = self._head, self._throttle
        self.begin()
        head[HEAD_START], head[HEAD_END] = start, end
        head[HEAD_NOW_MS], head[HEAD_WALL_MS] = now
        space_ms = throttle.delay_ms(end - start, now.monotonic_ms) if throttle.is_on else 0
        head[HEAD_THROTTLE_MS] = max(space_ms, quota_ms)
        if len(self._logs) == 1:
            log = self._logs[0]
            tables = log.memory.memory, log.links, log.producers.table
            stop = produce(data, *tables, directory, self.plan, self.out)
        else:
            head[HEAD_PARSED] = parse_requests(data, directory, self.plan)
            stop = STOP_LOG_FULL  # Not known for any log yet: look at all.
        return self.resume(data, directory, stop)

    def parse(self, data: np.ndarray, directory: np.ndarray, now: Now) -> None:
        """Read a request into the plan; resume() continues it."""
        head, throttle = self._head, self._throttle
        self.begin()
        head[HEAD_START], head[HEAD_END] = 0, len(data)
        head[HEAD_NOW_MS], head[HEAD_WALL_MS] = now
        now_ms = now.monotonic_ms
        head[HEAD_THROTTLE_MS] = throttle.delay_ms(len(data), now_ms) if throttle.is_on else 0
        head[HEAD_PARSED] = parse_requests(data, directory, self.plan)

    def begin(self) -> None:
        """Before a kernel runs with the plan: nothing is throttled, answers begin at 0."""
        self._refused_count = self._head[HEAD_THROTTLE_MS] = self._head[HEAD_OUT_START] = 0

    def resume(self, data: np.ndarray, directory: np.ndarray, stop: int) -> Produced:
        """Finish what the kernel began with `data` and the plan, whatever stopped it."""
        head = self._head
        marks = self._finish(data, stop)
        if head[HEAD_PARSED] == STOP_PLAN_FULL and head[HEAD_REQUEST_COUNT] == 0:
            return self._run_larger(
                data,
                head[HEAD_START],
                head[HEAD_END],
                directory,
                Now(head[HEAD_NOW_MS], head[HEAD_WALL_MS]),
            )
        start = head[HEAD_OUT_START]
        assert head[HEAD_START] <= head[HEAD_END]
        assert start + head[HEAD_OUT_BYTES] <= len(self.out)
        return Produced(
            head[HEAD_START],
            head[HEAD_PARSED],
            self.out.data[start : start + head[HEAD_OUT_BYTES]],
            marks,
            bool(head[HEAD_CLOSE]),
            self._refused_count,
        )

    def _finish(self, data: np.ndarray, stop: int) -> Marks:
        """Append the rest of a plan and write the answers; returns where they are due."""
        if stop < STOP_LOG_FULL:
            return marks_of(self._logs[0], self._head[HEAD_LEVEL])
        marks: Marks = ()
        for log in self._logs:
            self._append(log, data)
            assert self._head[HEAD_LEVEL] in LEVELS
            marks += marks_of(log, self._head[HEAD_LEVEL])
            self._head[HEAD_LEVEL] = LEVEL_NONE  # Nothing is known about the next log yet.
        if self._refused or self._head[HEAD_LED_ELSEWHERE]:
            self._write_in_words(data)
            return marks
        while write_answers(data, self.plan, self.out) == STOP_OUT_FULL:
            self.out = np.zeros(2 * len(self.out), np.uint8)
        return marks

    def _append(self, log: Log, data: np.ndarray) -> None:
        """Append the rest of a plan to a log, resolving whatever stops it."""
        tables = log.memory.memory, log.links, log.producers.table
        while True:
            reason = append_rows(*tables, data, self.plan)
            if reason == STOP_LOG_FULL:
                if self.before_drain is not None:
                    self.before_drain(log)
                self._drain(log)
            elif reason == STOP_REFERENCES:
                self._check_references(log, data)
            else:
                break

    def _check_references(self, log: Log, data: np.ndarray) -> None:
        """Continue the row that stopped, or refuse it."""
        plan, number = self.plan, self._head[HEAD_STOPPED_ROW]
        row = plan[row_at(plan, number) :]
        code = int(row[ROW_CODE])
        partition = int(log.partitions.table[code & 0xFFFFFFFF, P_NUMBER])
        verdict = self._handles.check(partition, data, int(row[ROW_AT]), self._head[HEAD_WALL_MS])
        if verdict.instead is not None:
            self._append_instead(log, row, verdict.instead)
            return
        row[ROW_ERROR] = verdict.error
        row[ROW_STATE] = DONE if verdict.error else REFERENCES_CHECKED
        if verdict.refused:
            self._refused[number] = verdict.refused
            self._refused_count += len(verdict.refused)
        elif not verdict.error and (rule := self._handles.rule_of(partition)) is not None:
            add_rule(self._rules, self._paths, code, *rule)

    def _append_instead(self, log: Log, row: np.ndarray, batch: np.ndarray) -> None:
        """Append a replacement for a row's batch, and finish the row."""
        if self._single is None:
            self._single = new_plan(1, 1, 1)
        single, head = self._single, self._head
        inner = single[row_at(single, 0) :]
        inner[:ROW_WORDS] = row[:ROW_WORDS]
        inner[ROW_AT], inner[ROW_BYTES] = 0, len(batch)
        inner[ROW_STATE], inner[ROW_VERSION] = REFERENCES_CHECKED, VERSION_MAX
        for word in (HEAD_NOW_MS, HEAD_WALL_MS):
            single[word] = head[word]
        single[HEAD_ROW_COUNT], single[HEAD_LEVEL] = 1, LEVEL_NONE
        while append_rows(log.memory.memory, log.links, log.producers.table, batch, single):
            assert single[HEAD_STOP] == STOP_LOG_FULL, "its handles are not looked at"
            if self.before_drain is not None:
                self.before_drain(log)
            self._drain(log)
        for word in (ROW_STATE, ROW_ERROR, ROW_BASE_OFFSET, ROW_APPEND_TIME, ROW_LOG_START):
            row[word] = inner[word]
        head[HEAD_LEVEL] = max(head[HEAD_LEVEL], int(single[HEAD_LEVEL]))

    def forget_rules(self) -> None:
        """Forget the rules: partitions may belong to other topics now, or configs have changed."""
        forget_rules(self._rules)

    def _write_in_words(self, data: np.ndarray) -> None:
        """Answer a plan with rows that were refused for their handles or are led elsewhere."""
        answers = answers_of(data, self.plan, self._refused, self._leader_of)
        count_errors(self.plan)
        self._refused = {}
        if len(answers) > len(self.out):
            self.out = np.zeros(len(answers), np.uint8)
        self.out.data[: len(answers)] = answers
        self._head[HEAD_OUT_START], self._head[HEAD_OUT_BYTES] = 0, len(answers)

    def _run_larger(
        self, data: np.ndarray, start: int, end: int, directory: np.ndarray, now: Now
    ) -> Produced:
        """Run one request that exceeds the plan with a larger plan."""
        plan = self.plan
        rows = min(2 * int(plan[HEAD_ROW_CAPACITY]), PLAN_ROWS_MAX)
        self._set_plan(new_plan(1, rows, rows))
        produced = self.run(data, start, end, directory, now)
        self._set_plan(plan)
        self.out = np.zeros(ANSWERS_BYTES, np.uint8)
        return produced

    def _set_plan(self, plan: np.ndarray) -> None:
        self.plan, self._head = plan, plan.data  # A view yields Python ints.
        plan[HEAD_REQUEST_BYTES_MAX] = self._request_bytes_max
        plan[HEAD_TRANSACTIONS] = self._takes_transactions
        plan[HEAD_RULES : HEAD_RULES + 2] = self._rules.ctypes.data, len(self._rules)
        if self._errors is not None:
            plan[HEAD_ERRORS : HEAD_ERRORS + 2] = self._errors.ctypes.data, len(self._errors)
