"""The library of linked kernels: a Python extension that has their machine code, for one processor.

    shm/compiled/<level>/      of a wheel, for a level of the x86-64 psABI
    <cache>/linked/<digest>/   of this machine, made after its first start has compiled the kernels
        kernels.cpython-311-x86_64-linux-gnu.so          the ending says for which Python
        kernels.cpython-311-x86_64-linux-gnu.so.sha256   digests of the sources and of that file

`shm/warm/link.py` makes it. It is used if the sources are the same, the processor has what it
needs, and the file matches its digest; Numba is not imported then. Of one that is there and not
used, `find_library` says why. Kernels compiled for exactly this processor are not faster than a
level's: `NUMBA_CPU_NAME=x86-64-v2 NUMBA_CPU_FEATURES= python
-m bench.kernels` compares.
"""

import hashlib
from collections.abc import Iterator, Set as AbstractSet
from contextlib import suppress
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from shm.private import private_version
from shm.system import MACHINE, variables

SOURCES = next(each for each in Path(__file__).resolve().parents if each.name == "shm")
FOLDER = "compiled"
MODULE = "kernels"
FILE = MODULE + EXTENSION_SUFFIXES[0]
MANIFEST = f"{FILE}.sha256"
# Variables of Numba that change the code it makes. A process that has one gets no library.
COMPILED_OTHERWISE = frozenset({
    *("NUMBA_BOUNDSCHECK", "NUMBA_CPU_FEATURES", "NUMBA_CPU_NAME", "NUMBA_DEBUGINFO"),
    *("NUMBA_DISABLE_JIT", "NUMBA_OPT"),
})  # fmt: skip
_PROCESSOR = Path("/proc/cpuinfo")
_DECISIVE = ("model name", "flags", "CPU implementer", "CPU part", "Features")

_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
# The levels of the x86-64 psABI, the best first, by LLVM's names; what they need, by Linux's.
LEVELS: dict[str, frozenset[str]] = {"x86-64-v3": _V3, "x86-64-v2": _V2}


@cache
def sources_digest() -> str:
    """A digest of all sources of kernels, and of what links them, as they first were here."""
    return _digest_now()


def have_sources_changed() -> bool:
    """Whether somebody has changed the sources since then: a module may have been read after it."""
    return _digest_now() != sources_digest()


def _digest_now() -> str:
    digest = hashlib.sha256()
    for source in sorted([*SOURCES.rglob("*.py"), *SOURCES.rglob("*.c")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def machine_folder() -> Path:
    """Where this machine's library lies, or will. Raises OSError."""
    digest = hashlib.sha256((sources_digest() + _described_processor()).encode())
    return private_version("linked", digest.hexdigest()[:16])


def may_use_library() -> bool:
    """Whether nobody asks this process for kernels that are compiled otherwise."""
    return variables().keys().isdisjoint(COMPILED_OTHERWISE)


def find_library() -> tuple[Any, list[str]]:
    """The best library for this process, a module, and a sentence on each that cannot be used.

    None if there is no library, or none may be used.
    """
    problems: list[str] = []
    for folder in _folders() if may_use_library() else ():
        try:
            if (folder / MANIFEST).exists():  # It is written last.
                return _load(folder), problems
        except (OSError, ImportError) as reason:
            problems.append(f"the linked kernels in {folder} are not used: {reason}")
    return None, problems


def _folders() -> Iterator[Path]:
    has = features_here()
    for level, needed in LEVELS.items():
        if needed <= has:
            yield SOURCES / FOLDER / level
    with suppress(OSError):
        yield machine_folder()


def _load(folder: Path) -> Any:
    """Raises OSError or ImportError."""
    lines = (folder / MANIFEST).read_text(errors="replace").splitlines()
    if lines[:1] != [sources_line()]:
        raise ImportError("they were made of other sources")
    if lines[1:] != [code_line(folder)]:
        raise ImportError(f"{FILE} is damaged")
    spec = spec_from_file_location(MODULE, folder / FILE)
    assert spec is not None
    assert spec.loader is not None
    library = module_from_spec(spec)
    spec.loader.exec_module(library)
    return library


def sources_line() -> str:
    """The first line of a manifest: what a library is made of."""
    return f"sources {sources_digest()}"


def code_line(folder: Path) -> str:
    """The second and last line of a manifest: the library itself. Raises OSError."""
    return f"{FILE} {hashlib.sha256((folder / FILE).read_bytes()).hexdigest()}"


def features_here() -> AbstractSet[str]:
    """The features of this processor, by Linux's names, where it has names like LEVELS'."""
    if MACHINE != "x86_64":
        return frozenset()
    lines = _described_processor().splitlines()
    return frozenset(word for line in lines if line.startswith("flags") for word in line.split())


@cache
def _described_processor() -> str:
    """What decides which code runs here; empty where the system does not say."""
    try:
        lines = _PROCESSOR.read_text().splitlines()
    except OSError:
        return ""
    return "\n".join(sorted({line for line in lines if line.startswith(_DECISIVE)}))
