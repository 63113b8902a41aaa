"""Compiles all kernels for the usual processors, for a wheel: `python -m shm.warm.ship FOLDER`.

FOLDER is a copy of the package `shm`; `shm/kernels/base/shipped.py` draws its contents. Each target
processor gets a process of its own, which tells Numba by its environment. It compiles for the
running Python, and needs a processor with the features of the best target. `make wheel` runs it for
a wheel. On aarch64 it makes nothing: such kernels are untested there.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from numba.core.caching import UserProvidedCacheLocator

from shm.kernels.base.jit import SOURCES, sources_digest
from shm.kernels.base.shipped import (
    FOLDER,
    MANIFEST,
    PROCESSORS,
    features_here,
    made_of,
)

LOCATOR: Any = UserProvidedCacheLocator  # It names the folder that has a source file's kernels.
COMPILE = """
from shm.warm.client import warm_client
from shm.warm.reader import warm_reader
from shm.warm.shard import warm
warm(); warm_client(); warm_reader()
"""


def ship(into: Path, compile_: str = COMPILE) -> list[Path]:
    """Compile the kernels that the program `compile_` calls into `into`; returns the new
    folders."""
    made = []
    processors = PROCESSORS if platform.machine() == "x86_64" else {}
    for processor, needed in processors.items():
        if not needed <= features_here():
            print(f"{processor}: not here, this processor lacks {needed - features_here()}")  # noqa: T201
            continue
        with tempfile.TemporaryDirectory() as caches:
            environment = os.environ | {
                "NUMBA_CACHE_DIR": caches,
                "NUMBA_CPU_NAME": processor,
                "NUMBA_CPU_FEATURES": "",
            }
            subprocess.run([sys.executable, "-c", compile_], env=environment, check=True)  # noqa: S603
            folder = into / FOLDER / f"{processor}-{sys.implementation.cache_tag}"
            made.append(_collect(Path(caches), folder))
    return made


def _collect(caches: Path, folder: Path) -> Path:
    """Move Numba's files below `caches` into `folder`, by their sources' folders."""
    shutil.rmtree(folder, ignore_errors=True)
    for source in sorted({each.parent for each in SOURCES.rglob("*.py")}):
        cached = caches / LOCATOR.get_suitable_cache_subpath(str(source / "x.py"))
        if cached.is_dir():
            shutil.copytree(cached, folder / source.relative_to(SOURCES))
    files = sorted(each for each in folder.rglob("*.nb?"))
    digests = {
        each.relative_to(folder).as_posix(): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in files
    }
    manifest = {"made_of": made_of(sources_digest()), "files": digests}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))
    return folder


if __name__ == "__main__":
    for made in ship(Path(sys.argv[1])):
        size = sum(each.stat().st_size for each in made.rglob("*") if each.is_file())
        print(f"{made}: {size:,} bytes")  # noqa: T201
