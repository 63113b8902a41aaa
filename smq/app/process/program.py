"""Our programs that run as a process of their own: how they are started, and what they are told.

`-P` keeps the working directory out of their imports: a file there named like a module of ours, or
of the standard library, would run. A program that handles what strangers send gets named variables
only: no secret that the broker was started with.
"""

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path

NAMED = frozenset(
    {
        *("PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"),
        *("XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "NUMBA_CACHE_DIR"),
        *("PYTHONPATH", "PYTHONUSERBASE", "PYTHONUTF8", "LD_LIBRARY_PATH"),
    }
)
# What an object store's library asks for: keys or a role, a proxy, certificates.
OF_STORES = frozenset({"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"})
HOME = Path(__file__).resolve().parents[3]  # Where the packages smq, shm and gateway lie.
# A fork copies one thread: thread pools of OpenBLAS or OpenMP would not survive it.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
STORE_PREFIX, LOCALE_PREFIX = "AWS_", "LC_"


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(*, with_store: bool = False) -> dict[str, str]:
    """The variables that a program gets beside strangers' bytes; `with_store`: the filer's too."""
    return {
        name: value
        for name, value in importing().items()
        if name in NAMED
        or name.startswith(LOCALE_PREFIX)
        or (with_store and (name.startswith(STORE_PREFIX) or name.upper() in OF_STORES))
    }


def importing(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """All variables, and a path to this package where only the working directory led to it."""
    home = str(HOME)
    known = {*site.getsitepackages(), site.getusersitepackages()}
    given = variables.get("PYTHONPATH", "")
    if home in known or home in given.split(os.pathsep):
        return dict(variables)
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, (given, home)))}
