"""Caches the page of /metrics for a second, and samples counters and lags between scrapes."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from smq.app.front.observer import SAMPLE_MS, Observer
from smq.app.front.webhook import Webhook
from smq.app.process.clock import monotonic_ms, now, wall_ms
from smq.front.console.history import History
from smq.front.metrics.alerts import Alerts
from smq.front.metrics.facts import Facts
from smq.front.metrics.page import page
from smq.model.lag_rules import LagRule
from smq.model.printable import say_error

FRESH_MS = 1000  # A page is rendered once in this time, however many scrapers there are.
COUNTERS_MS = 2000  # The interval of samples for the console's charts.


class Metrics:
    """Renders pages from an observer in a thread of its own. Thread-safe."""

    def __init__(
        self,
        observer: Observer,
        rules: Sequence[LagRule] = (),
        webhook: Webhook | None = None,
    ) -> None:
        self._observer = observer
        self.alert_by(rules, webhook)
        self._thread = ThreadPoolExecutor(1, "metrics")
        self.history = History()
        self._page = b""
        self._made_ms = -FRESH_MS
        self._facts: tuple[int, Facts] | None = None

    def alert_by(self, rules: Sequence[LagRule], webhook: Webhook | None) -> None:
        """Replace the alert rules. Alerts that fire by the old rules end."""
        self._alerts, self._webhook = Alerts(rules), webhook

    def page(self) -> bytes:
        """The page; may be up to FRESH_MS old."""
        return self._thread.submit(self._fresh_page).result()

    def _fresh_page(self) -> bytes:
        if monotonic_ms() - self._made_ms >= FRESH_MS:
            self._page, self._made_ms = page(self._observer.look()), monotonic_ms()
        return self._page

    def look(self) -> Facts:
        """Read the facts now."""
        return self._thread.submit(self._observer.look).result()

    def recent(self) -> Facts:
        """The facts, at most FRESH_MS old: concurrent callers share one read."""
        return self._thread.submit(self._recent).result()

    def _recent(self) -> Facts:
        if self._facts is None or monotonic_ms() - self._facts[0] >= FRESH_MS:
            facts = self._observer.look()
            self._facts = monotonic_ms(), facts
        return self._facts[1]

    async def count(self) -> None:
        """Sample the counters for the charts."""
        await asyncio.wrap_future(self._thread.submit(self._count))

    def _count(self) -> None:
        self.history.add_counters(wall_ms(), self._observer.counters())

    async def watch(self) -> None:
        """Sample the partitions' ends and report late groups."""
        await asyncio.wrap_future(self._thread.submit(self._watch))

    def _watch(self) -> None:
        self.history.add_lags(wall_ms(), *self._observer.lags())
        alerts, webhook = self._alerts, self._webhook
        if not alerts.rules:
            self._observer.sample()
            return
        for event in alerts.look(self._observer.look().offsets, now()):
            say_error(f"alert: {event.sentence}")
            if webhook is not None:
                webhook.tell(event.as_json())


async def keep_watching(metrics: Metrics) -> None:
    """Watch for ever, periodically."""
    while True:
        await metrics.watch()
        await asyncio.sleep(SAMPLE_MS / 1000)


async def keep_counting(metrics: Metrics) -> None:
    """Count for ever, periodically."""
    while True:
        await metrics.count()
        await asyncio.sleep(COUNTERS_MS / 1000)
