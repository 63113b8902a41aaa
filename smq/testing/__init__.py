"""The test kit: fresh brokers for tests, ours and yours; fakes; the real Apache Kafka as an oracle.

    import smq.testing

    with smq.testing.broker(shards=2) as broker:
        ...  # broker.bootstrap, broker.connect(), broker.kill("shard-1")

In pytest the fixture `smq_broker` gives one to each test (docs/testing.md). pytest imports this
module at every start where smq is installed: it imports nothing heavy until a broker is wanted.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from smq.testing.smq_broker import SmqBroker


def broker(**settings: "str | int | Path") -> "AbstractContextManager[SmqBroker]":
    """A fresh broker on free ports for a `with` block, which leaves nothing behind.

    Settings are those of `smq serve`, with `_` for the dots in their names; the environment and
    configuration files are ignored. Its rings and logs are small, and lie on a tmpfs if there is
    one. Raises ValueError with all problems of the settings.
    """
    from smq.testing.smq_broker import fresh_broker  # noqa: PLC0415

    return fresh_broker({name.replace("_", "."): str(value) for name, value in settings.items()})
