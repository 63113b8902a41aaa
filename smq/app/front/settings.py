"""Settings of the front that change at run time: upload quotas, and alerts for late groups."""

import asyncio

from smq.app.front.metrics import Metrics
from smq.app.front.webhook import Webhook
from smq.app.process.inheritance import Inheritance
from smq.front.space import Space
from smq.model.catalog import BROKER, Catalog
from smq.model.config import Config
from smq.model.lag_rules import parse_lag_rules
from smq.model.live_config import in_force

LOOK_S = 0.5  # The delay until a change takes effect here.


class FrontSettings:
    """Applies the catalog's settings to the parts of the front."""

    def __init__(self, inheritance: Inheritance, space: Space, metrics: Metrics) -> None:
        self._inheritance, self._space, self._metrics = inheritance, space, metrics
        self._version = 0
        url = inheritance.config.lag_alert_webhook
        self._webhook = Webhook(url) if url else None
        self._config: Config | None = None

    async def keep_looking(self) -> None:
        """Poll for ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Apply the settings if they have changed."""
        block = self._inheritance.catalog
        if self._config is not None and not block.has_moved(self._version):
            return
        self._version, published = block.read()
        settings = Catalog.decode_settings(published) if published else {}
        config = in_force(self._inheritance.config, settings.get(BROKER, {}))
        if config is not self._config:
            self._use(config)

    def _use(self, config: Config) -> None:
        before, self._config = self._config, config
        self._space.limit(config.filer_quota_bytes, config.filer_reserve_bytes)
        if before is not None and config.lag_alert_rules == before.lag_alert_rules:
            return
        self._metrics.alert_by(parse_lag_rules(config.lag_alert_rules), self._webhook)
