"""Kernels that were compiled elsewhere are used where they fit, whole, and nowhere else."""

import hashlib
import json
import sys
from pathlib import Path

import pytest

from shm.kernels.base.shipped import MANIFEST, PROCESSORS, Shipped, find_shipped, made_of

V2, V3 = PROCESSORS["x86-64-v2"], PROCESSORS["x86-64-v3"]
TAG = sys.implementation.cache_tag


def put(shm: Path, processor: str, sources: str = "digest") -> Path:
    """Kernels for a processor: one file."""
    folder = shm / "compiled" / f"{processor}-{TAG}"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "one.nbc").write_bytes(b"code")
    files = {"kernels/one.nbc": hashlib.sha256(b"code").hexdigest()}
    (folder / MANIFEST).write_text(json.dumps({"made_of": made_of(sources), "files": files}))
    return folder


def found(shm: Path, features: frozenset[str]) -> str | None:
    shipped = find_shipped(shm, "digest", features)
    return shipped.processor if shipped else None


def test_the_best_that_the_processor_can_run_is_taken(tmp_path: Path) -> None:
    assert found(tmp_path, V3) is None
    put(tmp_path, "x86-64-v2")
    assert found(tmp_path, V3) == "x86-64-v2"
    put(tmp_path, "x86-64-v3")
    assert found(tmp_path, V3 | {"avx512f"}) == "x86-64-v3"
    assert found(tmp_path, V3 - {"bmi2"}) == "x86-64-v2"
    assert found(tmp_path, V2 - {"sse4.2"}) is None


@pytest.mark.parametrize("part", ["sources", "numba", "llvmlite", "python"])
def test_kernels_of_other_sources_or_versions_are_not_used(tmp_path: Path, part: str) -> None:
    manifest = put(tmp_path, "x86-64-v2") / MANIFEST
    content = json.loads(manifest.read_text())
    content["made_of"][part] = "another"
    manifest.write_text(json.dumps(content))
    assert found(tmp_path, V3) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"made_of": 1}', "null"])
def test_an_unreadable_manifest_counts_as_none(tmp_path: Path, text: str) -> None:
    (put(tmp_path, "x86-64-v2") / MANIFEST).write_text(text)
    assert found(tmp_path, V3) is None


def test_a_file_that_is_damaged_missing_or_not_listed_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, "x86-64-v2")
    shipped = find_shipped(tmp_path, "digest", V2)
    assert isinstance(shipped, Shipped)
    file = shipped.folder / "kernels" / "one.nbc"
    assert shipped.whole()
    assert not shipped.read("kernels/two.nbc")
    file.write_bytes(b"c0de")
    assert not shipped.whole()
    file.unlink()
    assert not shipped.whole()
