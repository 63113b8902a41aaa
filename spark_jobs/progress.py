"""Watches a stream: a line of JSON for each batch, until it ends or is stopped."""

import json
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from pyspark.errors import StreamingQueryException

from smq.tables.plan import Unreadable

EVERY_SECONDS = 2
SHOWN = ("batchId", "numInputRows", "durationMs")
OURS = ("Unreadable: ", "WrongOption: ", "BrokerUnavailable: ", "BrokerError: ")


class Query(Protocol):
    """What is asked of Spark's StreamingQuery."""

    def awaitTermination(self, timeout: int | None = None, /) -> bool | None: ...  # noqa: N802
    def stop(self) -> None: ...

    @property
    def recentProgress(self) -> Sequence[Any]: ...  # noqa: N802


def watch(query: Query) -> None:
    """Until the stream ends; Ctrl-C stops it, and it goes on from there in the next run.

    Raises Unreadable with the reason if SMQ's source or sink ended it, else what Spark raised.
    """
    said = -1
    try:
        is_over: bool | None = False
        while not is_over:
            is_over = query.awaitTermination(EVERY_SECONDS)
            for progress in query.recentProgress:
                if progress["batchId"] > said:
                    said = progress["batchId"]
                    sys.stdout.write(json.dumps({name: progress[name] for name in SHOWN}) + "\n")
            sys.stdout.flush()
    except KeyboardInterrupt:
        query.stop()
    except StreamingQueryException as error:
        raise Unreadable(_reason(str(error))) from error


def _reason(text: str) -> str:
    """The last line of a traceback in Spark's sentence that is of ours, else the sentence."""
    lines = [line.partition(each)[2] for line in text.splitlines() for each in OURS if each in line]
    return lines[-1].strip() if lines else text
