"""The front uses the settings in the catalog."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from shm.catalog import CatalogBlock
from smq.app.front.metrics import Metrics
from smq.app.front.settings import FrontSettings
from smq.front.space import Space
from smq.model.catalog import BROKER, Catalog
from smq.model.config import Config
from smq.testing.memory_store import MemoryStore

RULE = "a: records > 1 for 0s"
STARTED = replace(Config(), data_dir=Path("/d"), http_port=0, lag_alert_rules=RULE)


def test_alerts_and_quotas_change_with_the_catalog() -> None:
    block = CatalogBlock.create(1 << 20)
    inheritance: Any = SimpleNamespace(config=STARTED, catalog=block)
    space, observer = Space(MemoryStore(), -1, 0), SimpleNamespace()
    metrics = Metrics(observer)  # type: ignore[arg-type]
    settings = FrontSettings(inheritance, space, metrics)
    settings.look()
    assert [rule.text for rule in metrics._alerts.rules] == [RULE]
    first = metrics._alerts
    changed = {BROKER: {"": {"filer.quota.bytes": "5"}}}
    block.publish(Catalog("c", 1, {}, changed).encode())
    settings.look()
    assert (space.has_quota, space.counted) == (True, False)
    assert metrics._alerts is first, "what fires goes on firing"
    block.publish(Catalog("c", 2, {}, {BROKER: {"": {"lag.alert.rules": ""}}}).encode())
    settings.look()
    assert (space.has_quota, space.counted, metrics._alerts.rules) == (False, True, [])
