"""CRC-32C (Castagnoli), the check of Kafka's record batches and of our frames.

The processor's own instruction has a latency of three cycles and a throughput of one, so large
inputs are cut into three streams that run side by side; the three checks are then combined by
multiplying with x^(8 * bytes) modulo the polynomial (a table look-up for each byte of the check).
On processors without the instruction a table of 8 x 256 entries does eight bytes a step.

Source of the polynomial and the bit order: RFC 3720, appendix B.4.
"""

import numpy as np

from shm.kernels.base.jit import kernel
from shm.kernels.base.later import cgutils, intrinsic, ir, types
from shm.system import MACHINE

POLYNOMIAL_REFLECTED = 0x82F63B78
STREAM_BYTES = 1344  # A multiple of 8; three of them fit a level-1 cache beside the copied bytes.
STREAM_BYTES_SMALL = 168

_INSTRUCTION = {
    "x86_64": ("llvm.x86.sse42.crc32.64.64", "llvm.x86.sse42.crc32.32.8", 64),
    "aarch64": ("llvm.aarch64.crc32cx", "llvm.aarch64.crc32cb", 32),
}.get(MACHINE)
HAS_INSTRUCTION = _INSTRUCTION is not None


def _step(name, state_bits, argument_bits):
    """An intrinsic for one crc instruction: (check so far, next word) -> check."""

    @intrinsic
    def step(_typing, _crc, _word):
        def generate(_context, builder, _signature, args):
            state = ir.IntType(state_bits)
            argument = ir.IntType(argument_bits)
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(state, [state, argument]), name
            )
            crc = builder.trunc(args[0], state) if state_bits < 64 else args[0]
            word = builder.trunc(args[1], argument) if argument_bits < 64 else args[1]
            result = builder.call(function, [crc, word])
            return builder.zext(result, ir.IntType(64)) if state_bits < 64 else result

        return types.uint64(types.uint64, types.uint64), generate

    return step


@intrinsic
def load_word(_typing, array, index):
    """Eight unaligned bytes of a uint8 array as a uint64, in the machine's (little) endianness."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.gep(data, [args[1]])
        word = builder.load(builder.bitcast(pointer, ir.PointerType(ir.IntType(64))))
        word.align = 1
        return word

    return types.uint64(array, index), generate


def _byte_table() -> np.ndarray:
    table = np.zeros((8, 256), np.uint32)
    table[0] = np.arange(256)
    for _ in range(8):
        table[0] = (table[0] >> 1) ^ np.where(table[0] & 1, np.uint32(POLYNOMIAL_REFLECTED), 0)
    for row in range(1, 8):
        previous = table[row - 1]
        table[row] = (previous >> 8) ^ table[0][previous & 0xFF]
    return table


_TABLE = _byte_table()


def _shift_table(zero_bytes: int) -> np.ndarray:
    """The checksum after `zero_bytes` more zero bytes: one table entry for each of its bytes."""
    single = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(zero_bytes):
        single = (single >> np.uint32(8)) ^ _TABLE[0][single & np.uint32(0xFF)]
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    chosen = np.where(bits.astype(bool), single.reshape(4, 1, 8), np.uint32(0))
    table: np.ndarray = np.bitwise_xor.reduce(chosen, axis=2)
    return table


_SHIFT = _shift_table(STREAM_BYTES)
_SHIFT_SMALL = _shift_table(STREAM_BYTES_SMALL)


@kernel
def _shifted(table, crc):
    return np.uint64(
        table[0, crc & np.uint64(0xFF)]
        ^ table[1, (crc >> np.uint64(8)) & np.uint64(0xFF)]
        ^ table[2, (crc >> np.uint64(16)) & np.uint64(0xFF)]
        ^ table[3, (crc >> np.uint64(24)) & np.uint64(0xFF)]
    )


@kernel
def update_by_table(data, start, end, crc):
    """See crc32c_update: for processors without the instruction."""
    crc = np.uint32(crc)
    while start + 8 <= end:
        word = load_word(data, start) ^ np.uint64(crc)
        crc = np.uint32(0)
        for row in range(8):
            byte = (word >> np.uint64(8 * row)) & np.uint64(0xFF)
            crc ^= _TABLE[7 - row, byte]
        start += 8
    while start < end:
        crc = (crc >> np.uint32(8)) ^ _TABLE[0, (crc ^ data[start]) & np.uint32(0xFF)]
        start += 1
    return crc


if HAS_INSTRUCTION:
    assert _INSTRUCTION is not None
    _crc_word = _step(_INSTRUCTION[0], _INSTRUCTION[2], 64)
    _crc_byte = _step(_INSTRUCTION[1], 32, 8 if MACHINE == "x86_64" else 32)

    @kernel
    def _three_streams(data, start, end, crc, stream_bytes, shift):
        while end - start >= 3 * stream_bytes:
            second, third = np.uint64(0), np.uint64(0)
            for at in range(start, start + stream_bytes, 8):
                crc = _crc_word(crc, load_word(data, at))
                second = _crc_word(second, load_word(data, at + stream_bytes))
                third = _crc_word(third, load_word(data, at + 2 * stream_bytes))
            crc = _shifted(shift, crc) ^ second
            crc = _shifted(shift, crc) ^ third
            start += 3 * stream_bytes
        return start, crc

    @kernel
    def crc32c_update(data, start, end, crc):
        """The running (not inverted) check after the bytes data[start:end] of a uint8 array."""
        crc = np.uint64(crc)
        start, crc = _three_streams(data, start, end, crc, STREAM_BYTES, _SHIFT)
        start, crc = _three_streams(data, start, end, crc, STREAM_BYTES_SMALL, _SHIFT_SMALL)
        while start + 8 <= end:
            crc = _crc_word(crc, load_word(data, start))
            start += 8
        while start < end:
            crc = _crc_byte(crc, np.uint64(data[start]))
            start += 1
        return np.uint32(crc)

else:
    crc32c_update = update_by_table


@kernel
def crc32c(data, start, end):
    """CRC-32C of data[start:end], a uint8 array; a uint32."""
    return crc32c_update(data, start, end, np.uint32(0xFFFFFFFF)) ^ np.uint32(0xFFFFFFFF)
