"""The intrinsics of shm.kernels.base.bytes as functions that Python can call."""
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202

from shm.kernels.base import bytes as intrinsics
from shm.kernels.base.jit import kernel


def _loading(intrinsic):
    @kernel
    def load(data, at):
        return intrinsic(data, at)

    return load


def _storing(intrinsic):
    @kernel
    def store(data, at, value):
        intrinsic(data, at, value)

    return store


_GET = {"big": "get", "little": "load"}
_PUT = {"big": "put", "little": "store"}
WIDTHS = (16, 32, 64)
LOADS = {
    (order, bits): _loading(getattr(intrinsics, f"{name}{bits}"))
    for order, name in _GET.items()
    for bits in WIDTHS
}
STORES = {
    (order, bits): _storing(getattr(intrinsics, f"{name}{bits}"))
    for order, name in _PUT.items()
    for bits in WIDTHS
}


@kernel
def copied(target, target_at, source, source_at, length):
    """memcpy."""
    intrinsics.copy_bytes(target, target_at, source, source_at, length)
