"""Links all kernels for the usual processors, for a wheel: `python -m shm.warm.ship FOLDER`.

FOLDER is a copy of the package `shm`; `shm/kernels/base/library.py` draws its contents. Each level
of processors gets a process of its own, which tells Numba by its environment. It links for the
running Python, and needs a processor with the features of the best level. `make wheel` runs it for
a wheel. On aarch64 it makes nothing: such kernels are untested there.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from shm.kernels.base.library import FILE, FOLDER, LEVELS, features_here

LINK = "import sys; from shm.warm.link import link_all; link_all(sys.argv[1])"


def ship(into: Path, program: str = LINK) -> list[Path]:
    """Have `program` link into folders of `into`; returns those."""
    made = []
    for level, needed in LEVELS.items():
        if not needed <= features_here():
            print(f"{level}: not here, this processor lacks {needed - features_here()}")  # noqa: T201
            continue
        folder = into / FOLDER / level
        with tempfile.TemporaryDirectory() as caches:
            environment = os.environ | {
                "NUMBA_CACHE_DIR": caches,
                "NUMBA_CPU_NAME": level,
                "NUMBA_CPU_FEATURES": "",
            }
            command = [sys.executable, "-c", program, str(folder)]
            subprocess.run(command, env=environment, check=True)  # noqa: S603
        made.append(folder)
    return made


if __name__ == "__main__":
    for made in ship(Path(sys.argv[1])):
        print(f"{made / FILE}: {(made / FILE).stat().st_size:,} bytes")  # noqa: T201
