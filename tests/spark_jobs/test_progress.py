"""A stream's batches are told, and why it ended."""

import json
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from smq.tables.plan import Unreadable
from spark_jobs.progress import behind, watch


class FakeQuery:
    """Ends after some looks, by itself or with an error."""

    def __init__(self, looks: int, ending: BaseException | None = None) -> None:
        self.looks, self.ending = looks, ending
        self.is_stopped = False
        self.seen = 0

    def awaitTermination(self, timeout: int | None = None, /) -> bool:  # noqa: N802  (Spark's)
        self.seen += 1
        if self.seen > self.looks and self.ending is not None:
            raise self.ending
        return self.seen > self.looks

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802  (Spark's)
        return [
            {
                "batchId": n,
                "numInputRows": 10 * n,
                "durationMs": {},
                "more": 1,
                "observedMetrics": {"rows": (n,)},
            }
            for n in range(self.seen)
        ]

    def stop(self) -> None:
        self.is_stopped = True


def test_each_batch_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    observed = watch(FakeQuery(3))
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said == [{"batchId": n, "numInputRows": 10 * n, "durationMs": {}} for n in range(4)]
    assert observed == {"rows": 0 + 1 + 2 + 3}


def test_the_lag_of_a_query_is_computed_as_by_kafkas_source() -> None:
    ids = {"": {"orders": "an id"}}
    source = {
        "endOffset": ids | {"orders": {"0": 5, "1": 9}},
        "latestOffset": json.dumps({"orders": {"0": 8, "1": 9, "2": 4}}),
    }
    others = [{"endOffset": 3, "latestOffset": None}, {"endOffset": "x"}]
    assert behind({"sources": [source, *others]}) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 3,
        "avgOffsetsBehindLatest": 1.5,
    }
    assert behind({"sources": others}) == {}


def test_a_user_stops_a_stream() -> None:
    query = FakeQuery(1, KeyboardInterrupt())
    watch(query)
    assert query.is_stopped


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Traceback\n smq.tables.plan.Unreadable: no topic x\nat java", "no topic x"),
        ("smq.client.errors.BrokerUnavailable: gone\n", "gone"),
        ("of Spark's own", "of Spark's own"),
    ],
)
def test_the_reason_is_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=f"^{reason}$"):
        watch(FakeQuery(0, StreamingQueryException(text)))
