"""What Numba makes is made when it compiles a kernel that uses it, and not before."""

import subprocess
import sys
from typing import Any

import numpy as np

from shm.kernels.base.jit import kernel
from shm.kernels.base.later import external, intrinsic, ir, types

absolute = external("labs", "int64", "int64")


@intrinsic
def seven(_typing: Any) -> Any:
    def generate(*_: Any) -> Any:
        return ir.IntType(64)(7)

    return types.int64(), generate


def test_a_kernel_calls_intrinsics_and_functions_of_c() -> None:
    @kernel
    def sevenfold(data: np.ndarray) -> Any:
        return absolute(data[0]) * seven()

    assert sevenfold(np.array([-6])) == 42


def test_importing_what_is_made_later_imports_neither_numba_nor_llvmlite() -> None:
    code = (
        "import sys, shm.kernels.base.later, shm.kernels.base.libc, shm.kernels.base.library;"
        "print({'numba', 'llvmlite'} & sys.modules.keys())"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout == "set()\n"
