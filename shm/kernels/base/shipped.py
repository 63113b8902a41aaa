"""Compiled kernels shipped in the wheel, so that a first start need not compile.

    shm/compiled/<processor>-<python>/manifest.json    what they were made of, each file's digest
                                     /<folder>/*.nbi   Numba's index of one kernel's versions
                                     /<folder>/*.nbc   machine code

`python -m shm.warm.ship` makes them. They are used if sources, Numba, llvmlite and Python are the
same and the processor has the required features. A file is used only if its digest matches; missing
or damaged ones are compiled on the spot. The machine's own cache takes precedence. Kernels compiled
for exactly this processor are not faster: `NUMBA_CPU_NAME=x86-64-v2 NUMBA_CPU_FEATURES= python -m
bench.kernels` compares.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding
from numba.core.caching import FunctionCache, IndexDataCacheFile

FOLDER, MANIFEST = "compiled", "manifest.json"

_V2 = frozenset({"cx16", "sahf", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"})
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
# The levels of the x86-64 psABI, the best first. The names are LLVM's.
PROCESSORS: dict[str, frozenset[str]] = {"x86-64-v3": _V3, "x86-64-v2": _V2}


@dataclass(frozen=True, slots=True)
class Shipped:
    """The compiled kernels of one folder, for `processor`; `digests` are SHA-256 of its files."""

    folder: Path
    processor: str
    digests: Mapping[str, str]

    def read(self, name: str) -> bool:
        """Whether the file `name` (relative, with slashes) is the shipped one."""
        try:
            data = (self.folder / name).read_bytes()
        except OSError:
            return False
        return hashlib.sha256(data).hexdigest() == self.digests.get(name)

    def whole(self) -> bool:
        """Whether every file is the shipped one."""
        return all(self.read(name) for name in self.digests)


def made_of(sources: str) -> dict[str, str]:
    """What compiled kernels depend on besides the processor; `sources` is the sources' digest."""
    packages = {each: version(each) for each in ("numba", "llvmlite")}
    return {"sources": sources, "python": str(sys.implementation.cache_tag), **packages}


def find_shipped(shm: Path, sources: str, features: AbstractSet[str]) -> Shipped | None:
    """The compiled kernels in the package `shm` that fit, for a processor with these features."""
    for processor, needed in PROCESSORS.items():
        folder = shm / FOLDER / f"{processor}-{sys.implementation.cache_tag}"
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            fits = manifest["made_of"] == made_of(sources) and needed <= features
            if fits:
                return Shipped(folder, processor, dict(manifest["files"]))
        except (OSError, ValueError, LookupError, TypeError):
            continue  # None for this processor, or none readable.
    return None


@cache
def features_here() -> frozenset[str]:
    """The features of this processor, by LLVM's names."""
    found = llvmlite.binding.get_host_cpu_features()
    return frozenset(name for name, has in found.items() if has)


class _ShippedFile(IndexDataCacheFile):
    """One kernel's index and data, read only if they have their digests."""

    def __init__(self, shipped: Shipped, place: str, name: str, stamp: Any) -> None:
        super().__init__(str(shipped.folder / place), name, stamp)
        self._shipped, self._place = shipped, place

    def load(self, key: Any) -> Any:
        """The version for `key`, or None."""
        if not self._shipped.read(f"{self._place}/{self._index_name}"):
            return None
        return super().load(key)

    def _load_data(self, name: str) -> Any:
        if not self._shipped.read(f"{self._place}/{name}"):
            return None
        return super()._load_data(name)


class KernelCache(FunctionCache):
    """Numba's cache of one kernel, and its shipped files."""

    def __init__(self, function: Callable[..., Any], shm: Path, shipped: Shipped | None) -> None:
        super().__init__(function)
        self._processor, self._file = "", None
        source = Path(function.__code__.co_filename).resolve()
        if shipped and source.is_relative_to(shm):
            place = source.parent.relative_to(shm).as_posix()
            stamp = self._impl.locator.get_source_stamp()
            self._processor = shipped.processor
            self._file = _ShippedFile(shipped, place, self._impl.filename_base, stamp)

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super()._load_overload(sig, target_context)
        if found is None and self._file:
            signature, (triple, *_), function = self._index_key(sig, target_context.codegen())
            data = self._file.load((signature, (triple, self._processor, ""), function))
            found = data and self._impl.rebuild(target_context, data)
        return found
