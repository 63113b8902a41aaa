"""Writes Arrow binary views: columns that point at bytes instead of copying them.

0        4         8        12       16
+--------+---------+--------+--------+
| length | prefix  | buffer | offset |    longer than 12 bytes
+--------+---------+--------+--------+
| length | the bytes, zero-padded    |    up to 12
+--------+---------------------------+
"""

from shm.kernels.base.bytes import copy_bytes, store32, store64
from shm.kernels.base.jit import kernel

VIEW_BYTES = 16
INLINE_BYTES_MAX = 12


@kernel
def fill_views(data, ats, lengths, views, validity):
    """A view for each data[ats[i]:ats[i] + lengths[i]]; how many are null (length -1).

    views: uint8, 16 for each; validity: uint8, zeroed, a bit for each. All in buffer 0.
    """
    nulls = 0
    for row in range(len(ats)):
        view, length = row * VIEW_BYTES, lengths[row]
        store64(views, view, 0)
        store64(views, view + 8, 0)
        if length < 0:
            nulls += 1
            continue
        validity[row >> 3] |= 1 << (row & 7)
        store32(views, view, length)
        if length <= INLINE_BYTES_MAX:
            copy_bytes(views, view + 4, data, ats[row], length)
        else:
            copy_bytes(views, view + 4, data, ats[row], 4)
            store32(views, view + 12, ats[row])
    return nulls
