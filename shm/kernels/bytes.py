"""Numbers in bytes: Kafka's are big-endian, our frames' and memory's little-endian.

All take a uint8 array and an index of bytes, aligned or not. Nothing here checks bounds; who calls
has done so. They are intrinsics, not views: making a view inside a kernel counts references, which
costs more than the access.
"""

import sys

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shm.kernels.jit import kernel

assert sys.byteorder == "little", "SMQ's shared memory is little-endian"


def _pointer(context, builder, array_type, array, at):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [at])


def _load(bits, big_endian):
    """An intrinsic (data, at) -> int64: `bits` bits, sign-extended."""

    @intrinsic
    def load(_typing, data, at):
        def generate(context, builder, signature, args):
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            value = builder.load(builder.bitcast(pointer, ir.PointerType(ir.IntType(bits))))
            value.align = 1
            if big_endian:
                value = builder.bswap(value)
            return builder.sext(value, ir.IntType(64)) if bits < 64 else value

        return types.int64(data, types.int64), generate

    return load


def _store(bits, big_endian):
    """An intrinsic (data, at, value): the low `bits` bits of an int64."""

    @intrinsic
    def store(_typing, data, at, value):
        def generate(context, builder, signature, args):
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            number = ir.IntType(bits)
            value = builder.trunc(args[2], number) if bits < 64 else args[2]
            if big_endian:
                value = builder.bswap(value)
            builder.store(value, builder.bitcast(pointer, ir.PointerType(number))).align = 1
            return context.get_dummy_value()

        return types.void(data, types.int64, types.int64), generate

    return store


get16, get32, get64 = _load(16, True), _load(32, True), _load(64, True)
put16, put32, put64 = _store(16, True), _store(32, True), _store(64, True)
load16, load32, load64 = _load(16, False), _load(32, False), _load(64, False)
store16, store32, store64 = _store(16, False), _store(32, False), _store(64, False)


@intrinsic
def copy_bytes(_typing, target, target_at, source, source_at, length):
    """memcpy between two uint8 arrays; they must not overlap."""

    def generate(context, builder, signature, args):
        to = _pointer(context, builder, signature.args[0], args[0], args[1])
        start = _pointer(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, to, start, args[4], ir.Constant(ir.IntType(64), 1))
        return context.get_dummy_value()

    signature = types.void(target, types.int64, source, types.int64, types.int64)
    return signature, generate


@kernel
def load_u32(data, at):
    """An unsigned little-endian uint32, as int64."""
    return load32(data, at) & 0xFFFFFFFF
