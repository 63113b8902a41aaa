"""The page of /metrics, made at most once a second, and the samples that it needs between pages."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from smq.app.front.observer import SAMPLE_MS, Observer
from smq.app.process.clock import monotonic_ms
from smq.front.metrics.facts import Facts
from smq.front.metrics.page import page

FRESH_MS = 1000  # However many scrapers there are, a page is made once in this time.


class Metrics:
    """Pages of an observer, which works in a thread of its own. Any thread may ask."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._page = b""
        self._made_ms = -FRESH_MS

    def page(self) -> bytes:
        """The page, which may be a moment old."""
        return self._thread.submit(self._fresh_page).result()

    def _fresh_page(self) -> bytes:
        if monotonic_ms() - self._made_ms >= FRESH_MS:
            self._page, self._made_ms = page(self._observer.look()), monotonic_ms()
        return self._page

    def look(self) -> Facts:
        """The facts of this moment."""
        return self._thread.submit(self._observer.look).result()

    async def sample(self) -> None:
        """Note where the partitions end."""
        await asyncio.wrap_future(self._thread.submit(self._observer.sample))


async def keep_sampling(metrics: Metrics) -> None:
    """Sample for ever."""
    while True:
        await metrics.sample()
        await asyncio.sleep(SAMPLE_MS / 1000)
