"""Watches a stream: prints a line of JSON per batch until the stream ends or is stopped.

A Python source cannot add metrics to a query's progress, but reports the latest offsets. `behind`
computes the metrics of Spark's Kafka source from them.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Protocol

from pyspark.errors import StreamingQueryException

from smq.tables.plan import Unreadable
from spark_jobs.source.ranges import from_json
from spark_jobs.source.topics import Offsets

EVERY_SECONDS = 2
SHOWN = ("batchId", "numInputRows", "durationMs")
OURS = (
    "Unreadable: ",
    "WrongOption: ",
    "BrokerUnavailable: ",
    "BrokerError: ",
    "TransactionAborted: ",
    "[USER_RAISED_EXCEPTION] ",
)


class Query(Protocol):
    """The part of Spark's StreamingQuery that is used."""

    def awaitTermination(self, timeout: int | None = None, /) -> bool | None: ...  # noqa: N802
    def stop(self) -> None: ...

    @property
    def recentProgress(self) -> Sequence[Any]: ...  # noqa: N802


def watch(query: Query) -> Counter[str]:
    """Watch until the stream ends. Ctrl-C stops it; the next run continues from there.

    Returns the sums of what its batches observed (`DataFrame.observe`, one count each). Raises
    Unreadable with the reason if SMQ's source or sink failed, else Spark's own exception.
    """
    said, observed = -1, Counter[str]()
    try:
        is_over: bool | None = False
        while not is_over:
            is_over = query.awaitTermination(EVERY_SECONDS)
            for progress in query.recentProgress:
                if progress["batchId"] > said:
                    said = progress["batchId"]
                    told = {name: progress[name] for name in SHOWN} | behind(progress)
                    sys.stdout.write(json.dumps(told) + "\n")
                    for name, counts in (progress.get("observedMetrics") or {}).items():
                        observed[name] += counts[0]
            sys.stdout.flush()
    except KeyboardInterrupt:
        query.stop()
    except StreamingQueryException as error:
        raise Unreadable(_reason(str(error))) from error
    return observed


def behind(progress: Mapping[str, Any]) -> dict[str, float]:
    """How many records a query's partitions are behind: the metrics of Spark's Kafka source.

    `progress` is one of `query.recentProgress`. Skips sources that do not report offsets.
    """
    lags: list[int] = []
    for source in progress.get("sources", ()):
        try:
            ends, latest = (_offsets(source[name]) for name in ("endOffset", "latestOffset"))
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # Not one of our sources.
        lags += [max(0, latest[name] - end) for name, end in ends.items() if name in latest]
    if not lags:
        return {}
    return {
        "minOffsetsBehindLatest": min(lags),
        "maxOffsetsBehindLatest": max(lags),
        "avgOffsetsBehindLatest": fmean(lags),
    }


def _offsets(found: object) -> Offsets:
    return from_json(json.loads(found) if isinstance(found, str) else dict(found))  # type: ignore[call-overload]


def _reason(text: str) -> str:
    """The last traceback line in Spark's message that is ours, else the message."""
    lines = [line.partition(each)[2] for line in text.splitlines() for each in OURS if each in line]
    return lines[-1].strip() if lines else text
