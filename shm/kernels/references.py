"""Finding what may be a handle: the bytes of the header key `smq-ref` as they stand in a record.

A key's length stands before it as a varint: seven bytes are `\\x0e`. So eight bytes are searched,
64 places at a time: where the first and the fifth of them fit, all eight are compared. In the same
run on the same megabyte this takes half of what the CRC-32C does (`bench.reference`); batches that
hold the bytes elsewhere are looked at more closely and pass.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from shm.kernels.bytes import get16
from shm.kernels.crc32c import load_word
from shm.kernels.jit import kernel
from shm.kernels.words import ATTRIBUTE_CODEC_MASK, BATCH_ATTRIBUTES_AT, BATCH_HEADER_BYTES

HEADER_KEY = b"smq-ref"
PATTERN = bytes([2 * len(HEADER_KEY)]) + HEADER_KEY
PATTERN_WORD = int.from_bytes(PATTERN, "little")
PATTERN_BYTES = 8
LANES = 64  # Places looked at in one step: a vector of the newest processors, two of others.
COMPARED = (0, 4)  # The length and the dash: text seldom has the one, numbers seldom both.
assert len(PATTERN) == PATTERN_BYTES


@intrinsic
def _candidates(_typing, array, at):
    """A bit for each of the LANES places from data[at] on where the pattern may begin."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        vector, found = ir.VectorType(ir.IntType(8), LANES), None
        for shift in COMPARED:
            place = builder.gep(data, [builder.add(args[1], ir.Constant(args[1].type, shift))])
            word = builder.load(builder.bitcast(place, ir.PointerType(vector)))
            word.align = 1
            wanted = ir.Constant(vector, [PATTERN[shift]] * LANES)
            equal = builder.icmp_unsigned("==", word, wanted)
            found = equal if found is None else builder.and_(found, equal)
        return builder.bitcast(found, ir.IntType(LANES))

    return types.uint64(array, at), generate


@kernel
def find_pattern(data, at, end):
    """Where the pattern first stands in data[at:end] (uint8), or -1."""
    word = np.uint64(PATTERN_WORD)
    while at + LANES + PATTERN_BYTES <= end:
        if _candidates(data, at) != 0:
            for place in range(at, at + LANES):
                if load_word(data, place) == word:
                    return place
        at += LANES
    while at + PATTERN_BYTES <= end:
        if load_word(data, at) == word:
            return at
        at += 1
    return -1


@kernel
def may_refer(data, at, size):
    """Whether the batch of `size` bytes at data[at] may hold a handle; never a compressed one."""
    if get16(data, at + BATCH_ATTRIBUTES_AT) & ATTRIBUTE_CODEC_MASK:
        return False
    return find_pattern(data, at + BATCH_HEADER_BYTES, at + size) >= 0
