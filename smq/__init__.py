"""SMQ: a message queue for one host that speaks Kafka's wire protocol.

The names of `smq.client.sdk` are found here (`smq.connect`, `smq.Producer` …). They are imported
when one is first used: `import smq` costs nothing, and the broker's processes never load the SDK.

Brokers and shared memory need Linux on x86_64 or aarch64. On macOS, Windows and other processors
the SDK works over the wire: `smq.connect("host:port")` reaches a broker on Linux. What does not
work there raises an error that says so.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shm.interrupts import without_interrupts

if TYPE_CHECKING:
    from smq.client.sdk import *  # noqa: F403  (Its names are these.)

if sys.byteorder != "little":
    raise ImportError(
        "SMQ's kernels need a little-endian processor. From here any Kafka client (say, "
        "confluent-kafka) reaches a broker: set bootstrap.servers to that broker's address"
    )


def __getattr__(name: str) -> Any:  # noqa: ANN401  (whatever is named)
    if name.startswith("_"):  # Python's own questions; the SDK has no such names.
        raise AttributeError(f"module 'smq' has no attribute {name!r}")
    sdk = _sdk()
    try:
        found = getattr(sdk, name)
    except AttributeError:
        raise AttributeError(f"module 'smq' has no attribute {name!r}") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *vars(_sdk())})


@without_interrupts  # NumPy and Numba cannot be imported again once that was broken off.
def _sdk() -> ModuleType:
    return import_module("smq.client.sdk")
