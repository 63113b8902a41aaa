"""The check of any long part of some bytes, in a time that hardly grows with the part.

Who looks for frames behind damage checks one candidate every 64 bytes, and each may say that it is
as long as the rest: reading all of them would take the square of the bytes. But a check is linear.
So `sums` holds the check from data[0] to each chunk's start, and the two at a part's ends give the
check between them:

    data    |--------|--------|--------|--------|
    sums    0        1        2        3        4    sums of chunks, each read once
                 [............................]      a part
                 [...]  read                 [.]     read
                     [ sum 4 ^ sum 1 behind 3 chunks ]

The check behind n more chunks is a product with x^(8 * n * CHUNK_BYTES) modulo the polynomial
(zlib's crc32_combine does the same).

sums   int64 [chunks + 2]: how many chunks are in it; the sum at each chunk's start
"""

import numpy as np

from shm.kernels.base.crc32c import POLYNOMIAL_REFLECTED, crc32c_update
from shm.kernels.base.jit import kernel

CHUNK_BYTES = 1024
LONG_BYTES = 4 * CHUNK_BYTES  # To read a shorter part is about as fast.


def _chunk_power() -> int:
    """x^(8 * CHUNK_BYTES) modulo the polynomial; its highest bit is the coefficient of x^0."""
    power = 1 << 31
    for _ in range(8 * CHUNK_BYTES):
        power = power >> 1 ^ (POLYNOMIAL_REFLECTED if power & 1 else 0)
    return power


_CHUNK_POWER = _chunk_power()


def new_sums(data_bytes: int) -> np.ndarray:
    """Sums of so many bytes, none of them in it yet. They hold for one array of bytes, as long as
    nobody changes a byte that has still to be checked."""
    return np.zeros(data_bytes // CHUNK_BYTES + 2, np.int64)


@kernel
def _product(a, b):
    """The product of two polynomials modulo the check's."""
    product = np.int64(0)
    for bit in range(31, -1, -1):
        product ^= b & -((a >> bit) & 1)
        b = (b >> 1) ^ (POLYNOMIAL_REFLECTED & -(b & 1))
    return product


@kernel
def _behind_chunks(crc, chunks):
    """The running check after so many chunks of zeros."""
    power = np.int64(_CHUNK_POWER)
    while chunks > 0:
        if chunks & 1:
            crc = _product(power, crc)
        power = _product(power, power)
        chunks >>= 1
    return crc


@kernel
def crc32c_update_by_sums(data, start, end, crc, sums):
    """See crc32c_update: the same, by `sums`, which it completes as far as it needs them."""
    first, last = (start + CHUNK_BYTES - 1) // CHUNK_BYTES, end // CHUNK_BYTES
    if end - start < LONG_BYTES or last + 2 > sums.size:
        return crc32c_update(data, start, end, np.uint32(crc))
    for chunk in range(sums[0], last):
        at = chunk * CHUNK_BYTES
        so_far = np.uint32(sums[1 + chunk])
        sums[2 + chunk] = np.int64(crc32c_update(data, at, at + CHUNK_BYTES, so_far))
        sums[0] = chunk + 1
    crc = np.int64(crc32c_update(data, start, first * CHUNK_BYTES, np.uint32(crc)))
    crc = _behind_chunks(crc ^ sums[1 + first], last - first) ^ sums[1 + last]
    return crc32c_update(data, last * CHUNK_BYTES, end, np.uint32(crc))
