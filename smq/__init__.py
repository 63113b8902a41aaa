"""SMQ: a message queue for one host that speaks Kafka's wire protocol.

The names of `smq.client.sdk` are found here (`smq.connect`, `smq.Producer` …). They are imported
when one is first used: `import smq` costs nothing, and the broker's processes never load the SDK.

On a system that SMQ does not run on, `import smq` raises an ImportError that says what works there.
"""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shm.interrupts import without_interrupts

if TYPE_CHECKING:
    from smq.client.sdk import *  # noqa: F403  (Its names are these.)

MACHINES = ("x86_64", "aarch64")  # Whose atomic instructions and system calls the kernels know.


def _refuse_other_systems() -> None:
    if not sys.platform.startswith("linux"):
        found = sys.platform
    elif os.uname().machine not in MACHINES:
        found = f"Linux on {os.uname().machine}"
    else:
        return
    raise ImportError(
        f"SMQ's broker, its SDK and `smq` need Linux on {' or '.join(MACHINES)}; this is {found}. "
        "From here, any Kafka client (confluent-kafka, say) produces to and consumes from a "
        "broker on Linux: set its bootstrap.servers to that broker's address"
    )


_refuse_other_systems()


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
