"""Kernels compiled for a class of processors load on this one; damaged ones are compiled anew."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shm.kernels.base.jit import SOURCES
from shm.kernels.base.shipped import MANIFEST
from shm.warm.ship import ship

USE = """
import numpy as np
from shm.kernels.base.crc32c import crc32c
check = crc32c(np.frombuffer(b"123456789", np.uint8), 0, 9)
print(hex(check), sum(crc32c.stats.cache_hits.values()))
"""


def used(copy: Path, caches: Path) -> tuple[str, int]:
    """What a program prints that finds the package `copy`; and how many kernels it compiled."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(copy)}
    environment["NUMBA_CACHE_DIR"] = str(caches)
    said = subprocess.run(
        [sys.executable, "-c", USE],
        env=environment, capture_output=True, text=True, check=True, timeout=120, cwd=copy,
    )  # fmt: skip
    return said.stdout.strip(), len(list(caches.rglob("*.nbc")))


@pytest.mark.slow
def test_shipped_kernels_are_loaded_unless_they_are_damaged_or_of_other_sources(
    tmp_path: Path,
) -> None:
    shutil.copytree(SOURCES, tmp_path / "shm")
    folders = ship(tmp_path / "shm", USE)
    if not folders:
        pytest.skip("nothing is shipped for this kind of processor")
    assert all((each / MANIFEST).is_file() for each in folders)
    assert used(tmp_path, tmp_path / "first") == ("0xe3069283 1", 0)
    for code in (tmp_path / "shm" / "compiled").rglob("crc32c.crc32c-*.nbc"):
        code.write_bytes(code.read_bytes()[:-1])
    assert used(tmp_path, tmp_path / "damaged") == ("0xe3069283 0", 1)
    (tmp_path / "shm" / "compiled").rename(tmp_path / "compiled")
    ship(tmp_path / "shm", USE)
    source = tmp_path / "shm" / "layout.py"
    source.write_text(source.read_text() + "\n# Another one.\n")
    assert used(tmp_path, tmp_path / "changed") == ("0xe3069283 0", 1)
