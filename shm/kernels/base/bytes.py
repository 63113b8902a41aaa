"""Numbers in bytes: Kafka's are big-endian, our frames' and memory's little-endian.

All take a uint8 array and an index of bytes, aligned or not. Nothing here checks bounds; callers
must. They are intrinsics, not views: making a view inside a kernel counts references, which costs
more than the access.
"""

import sys

from shm.kernels.base.jit import kernel
from shm.kernels.base.later import cgutils, intrinsic, ir, types

assert sys.byteorder == "little", "SMQ's shared memory is little-endian"

BLOCK_BYTES = 32  # A register of most processors, two of others.
SHORT_BYTES_MAX = 256


def _pointer(context, builder, array_type, array, at):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [at])


def _load(bits, order):
    """An intrinsic (data, at) -> int64: `bits` bits, sign-extended."""

    @intrinsic
    def load(_typing, data, _at):
        def generate(context, builder, signature, args):
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            value = builder.load(builder.bitcast(pointer, ir.PointerType(ir.IntType(bits))))
            value.align = 1
            if order == "big":
                value = builder.bswap(value)
            return builder.sext(value, ir.IntType(64)) if bits < 64 else value

        return types.int64(data, types.int64), generate

    return load


def _store(bits, order):
    """An intrinsic (data, at, value): the low `bits` bits of an int64."""

    @intrinsic
    def store(_typing, data, _at, _value):
        def generate(context, builder, signature, args):
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            number = ir.IntType(bits)
            value = builder.trunc(args[2], number) if bits < 64 else args[2]
            if order == "big":
                value = builder.bswap(value)
            builder.store(value, builder.bitcast(pointer, ir.PointerType(number))).align = 1
            return context.get_dummy_value()

        return types.void(data, types.int64, types.int64), generate

    return store


get16, get32, get64 = (_load(bits, "big") for bits in (16, 32, 64))
put16, put32, put64 = (_store(bits, "big") for bits in (16, 32, 64))
load16, load32, load64 = (_load(bits, "little") for bits in (16, 32, 64))
store16, store32, store64 = (_store(bits, "little") for bits in (16, 32, 64))


@intrinsic
def copy_bytes(_typing, target, _target_at, source, _source_at, _length):
    """memcpy between two uint8 arrays that do not overlap: target, its start, source, its start."""

    def generate(context, builder, signature, args):
        to = _pointer(context, builder, signature.args[0], args[0], args[1])
        start = _pointer(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, to, start, args[4], ir.Constant(ir.IntType(64), 1))
        return context.get_dummy_value()

    signature = types.void(target, types.int64, source, types.int64, types.int64)
    return signature, generate


@intrinsic
def _copy_block(_typing, target, _target_at, source, _source_at):
    """Copy BLOCK_BYTES through a register."""

    def generate(context, builder, signature, args):
        kind = ir.PointerType(ir.VectorType(ir.IntType(8), BLOCK_BYTES))
        to = _pointer(context, builder, signature.args[0], args[0], args[1])
        start = _pointer(context, builder, signature.args[2], args[2], args[3])
        block = builder.load(builder.bitcast(start, kind))
        block.align = 1
        builder.store(block, builder.bitcast(to, kind)).align = 1
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64), generate


@kernel
def copy_short(target, at, source, start, length):
    """As `copy_bytes`, for mostly short inputs.

    Up to BLOCK_BYTES behind the target become undefined. Copies whole blocks unless an array ends:
    calling memcpy for each of many small fields takes longer than copying them.
    """
    if (
        length > SHORT_BYTES_MAX
        or at + length + BLOCK_BYTES > len(target)
        or start + length + BLOCK_BYTES > len(source)
    ):
        copy_bytes(target, at, source, start, length)
        return
    for done in range(0, length, BLOCK_BYTES):
        _copy_block(target, at + done, source, start + done)


@kernel
def load_u32(data, at):
    """An unsigned little-endian uint32, as int64."""
    return load32(data, at) & 0xFFFFFFFF
