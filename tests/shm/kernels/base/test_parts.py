"""What kernels call becomes machine code in these only; what Python calls, by itself."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from shm.kernels.base.jit import kernel


def test_a_kernel_called_by_kernels_only_is_not_compiled_by_itself(tmp_path: Path) -> None:
    code = (
        "import numpy; from shm.kernels.base.frames import frame_is_good;"
        "print(frame_is_good(numpy.zeros(64, numpy.uint8), 0, 64, 0))"
    )
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    said = subprocess.run(
        [sys.executable, "-c", code],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert said.stdout == "False\n"
    cached = [path.name.split("-")[0] for path in tmp_path.rglob("*.nbi")]
    assert cached == ["frames.frame_is_good"]


def test_python_and_kernels_may_call_the_same_kernel() -> None:
    @kernel
    def square(data: np.ndarray, i: int) -> Any:
        return data[i] * data[i]

    @kernel
    def total(data: np.ndarray) -> Any:
        result = np.int64(0)
        for i in range(data.size):
            result += square(data, i)
        return result

    data = np.array([1, 2, 3])
    assert total(data) == 14
    assert square(data, 1) == 4
    assert total(data[:2]) == 5


def test_a_part_of_a_part_is_found_by_both_of_its_callers() -> None:
    @kernel
    def one_more(value: int) -> Any:
        return value + 1

    @kernel
    def two_more(value: int) -> Any:
        return one_more(one_more(value))

    @kernel
    def five_more(value: int) -> Any:
        return one_more(two_more(two_more(value)))

    assert five_more(2) == 7
