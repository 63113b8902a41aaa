"""The table of metrics has each counter of a log, and what each metric is labelled with."""

from smq.app.process.status import COUNTERS
from smq.cli.documentation.metrics import reference


def test_each_metric_is_a_row_with_its_labels() -> None:
    rows = reference().splitlines()
    restarts = "Restarts of the process."
    assert f"| `smq_process_restarts_total` | counter | `process` | {restarts} |" in rows
    assert any(row.startswith("| `smq_request_seconds` | histogram | `api` |") for row in rows)
    names = {row.split("`")[1] for row in rows[2:]}
    counted = [name for name in COUNTERS if not name.startswith("sync")]
    assert names >= {f"smq_log_{name}_total" for name in counted}
    assert "smq_wal_sync_seconds" in names
