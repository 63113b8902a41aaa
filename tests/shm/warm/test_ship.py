"""A library made for a level of processors is used, unless it is damaged or of other sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shm.kernels.base.library import FILE, MANIFEST, SOURCES
from shm.warm.link import why_unlinkable
from shm.warm.ship import ship
from tests.clients.toolchain import missing

LINK = """
import sys
from pathlib import Path
import numpy as np
from shm.kernels.base.crc32c import crc32c
from shm.warm.link import link
crc32c(np.frombuffer(b"123456789", np.uint8), 0, 9)
link(Path(sys.argv[1]))
"""
USE = """
import sys
import numpy as np
from shm.kernels.base.crc32c import crc32c
print(hex(crc32c(np.frombuffer(b"123456789", np.uint8), 0, 9)), "numba" in sys.modules)
"""


def used(copy: Path, caches: Path) -> str:
    """What a program prints that finds the package `copy`: a check, and whether Numba made it."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(copy)}
    environment["XDG_CACHE_HOME"] = str(caches)
    said = subprocess.run(
        [sys.executable, "-c", USE],
        env=environment, capture_output=True, text=True, check=True, timeout=120, cwd=copy,
    )  # fmt: skip
    return said.stdout.strip()


@pytest.mark.slow
def test_a_shipped_library_is_used_unless_it_is_damaged_or_of_other_sources(
    tmp_path: Path,
) -> None:
    if why := why_unlinkable():
        missing(why)
    shutil.copytree(SOURCES, tmp_path / "shm")
    folders = ship(tmp_path / "shm", LINK)
    if not folders:
        pytest.skip("nothing is shipped for this kind of processor")
    assert all((each / MANIFEST).is_file() for each in folders)
    assert used(tmp_path, tmp_path / "first") == "0xe3069283 False"
    libraries = [each / FILE for each in folders]
    whole = libraries[0].read_bytes()
    for each in libraries:
        each.write_bytes(whole[:-1])
    assert used(tmp_path, tmp_path / "damaged") == "0xe3069283 True"
    ship(tmp_path / "shm", LINK)
    source = tmp_path / "shm" / "layout.py"
    source.write_text(source.read_text() + "\n# Another one.\n")
    assert used(tmp_path, tmp_path / "changed") == "0xe3069283 True"
