"""SMQ: a message queue for one host that speaks Kafka's wire protocol.

The names of `smq.client.sdk` are found here (`smq.connect`, `smq.Producer` …). They are imported
when one is first used: `import smq` costs nothing, and the broker's processes never load the SDK.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shm.interrupts import without_interrupts

if TYPE_CHECKING:
    from smq.client.sdk import *  # noqa: F403  (Its names are these.)


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
