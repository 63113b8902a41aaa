"""The one home of memory ordering: every acquire, release and futex of the repository is here.

All of these are intrinsics, callable only inside kernels, on int64 or uint8 arrays (`words`) over
shared memory; an index counts elements of the array. The compiler hoists a plain access to a shared
word out of a loop; it does not hoist these.

    store_release(words, i, value)    an acquirer of value sees all earlier writes
    load_acquire(words, i)            … this is the partner
    fetch_add(words, i, value)        sequentially consistent; returns the old value
    compare_exchange(words, i, expected, value)   returns the old value
    fence()                           full barrier: the two halves of Dekker's handshake need it
    pause()                           in a spinning loop: yields to the core's other thread
    futex_wait(words, i, expected, timeout_ns)    sleep while the low 32 bits are as expected
    futex_wake(words, i, count)       wake that many sleepers
    address(words, i)                 the address of a word, for system calls
    bytes_at(words, i), words_at(…)   an array (uint8, int64) over mapped memory: its address is
                                      word i, its length word i + 1
"""

from shm.kernels.base import libc
from shm.kernels.base.jit import kernel
from shm.kernels.base.later import arrayobj, cgutils, intrinsic, ir, types
from shm.system import MACHINE

_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(MACHINE, -1)  # On others nobody sleeps on a word.
_FUTEX_WAIT = 0
_FUTEX_WAKE = 1


def _i64():
    return ir.IntType(64)


def _pointer(context, builder, signature, args):
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), ir.PointerType(_i64()))


@intrinsic
def load_acquire(_typing, words, index):
    """The word, and everything its writer wrote before it."""

    def generate(context, builder, signature, args):
        return builder.load_atomic(_pointer(context, builder, signature, args), "acquire", 8)

    return types.int64(words, index), generate


@intrinsic
def store_release(_typing, words, index, value):
    """Write the word after everything that was written before it."""

    def generate(context, builder, signature, args):
        pointer = _pointer(context, builder, signature, args)
        wide = context.cast(builder, args[2], signature.args[2], types.int64)
        builder.store_atomic(wide, pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(words, index, value), generate


@intrinsic
def fetch_add(_typing, words, index, value):
    """Add; returns the word as it was."""

    def generate(context, builder, signature, args):
        pointer = _pointer(context, builder, signature, args)
        wide = context.cast(builder, args[2], signature.args[2], types.int64)
        return builder.atomic_rmw("add", pointer, wide, "seq_cst")

    return types.int64(words, index, value), generate


@intrinsic
def compare_exchange(_typing, words, index, expected, value):
    """Write `value` if the word is as expected; returns the word as it was."""

    def generate(context, builder, signature, args):
        pointer = _pointer(context, builder, signature, args)
        old = context.cast(builder, args[2], signature.args[2], types.int64)
        new = context.cast(builder, args[3], signature.args[3], types.int64)
        pair = builder.cmpxchg(pointer, old, new, "seq_cst", "seq_cst")
        return builder.extract_value(pair, 0)

    return types.int64(words, index, expected, value), generate


@intrinsic
def fence(_typing):
    """A full barrier: no access moves across it."""

    def generate(context, builder, _signature, _args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


# LLVM's names and arguments (int32): on ARM it is hint number 1. Other processors go on at once.
_PAUSE, _PAUSE_ARGUMENTS = {
    "x86_64": ("llvm.x86.sse2.pause", []),
    "aarch64": ("llvm.aarch64.hint", [1]),
}.get(MACHINE, ("", []))


@intrinsic
def pause(_typing):
    """Wait about ten cycles, without a guarantee."""

    def generate(context, builder, _signature, _args):
        if _PAUSE:
            arguments = [ir.IntType(32)(each) for each in _PAUSE_ARGUMENTS]
            signature = ir.FunctionType(ir.VoidType(), [each.type for each in arguments])
            function = cgutils.get_or_insert_function(builder.module, signature, _PAUSE)
            builder.call(function, arguments)
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def address(_typing, words, index):
    """Where the word lies, for calls of the system."""

    def generate(context, builder, signature, args):
        return builder.ptrtoint(_pointer(context, builder, signature, args), _i64())

    return types.int64(words, index), generate


def _array_at(context, builder, kind, where, count):
    """The array struct of `count` elements at an address; nobody owns its memory."""
    array = context.make_array(kind)(context, builder)
    data = builder.inttoptr(where, context.get_data_type(kind.dtype).as_pointer())
    size = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
    arrayobj.populate_array(array, data, (count,), (size,), size, None)
    return array._getvalue()  # noqa: SLF001  (Numba's own way to pass a struct)


def _described(dtype):
    """An intrinsic that returns the memory described by two words: its address and its length."""

    @intrinsic
    def described(_typing, words, index):
        kind = types.Array(getattr(types, dtype), 1, "C")

        def generate(context, builder, signature, args):
            pointer = _pointer(context, builder, signature, args)
            where, count = builder.load(pointer), builder.load(builder.gep(pointer, [_i64()(1)]))
            return _array_at(context, builder, kind, where, count)

        return kind(words, index), generate

    return described


bytes_at = _described("uint8")
words_at = _described("int64")


@intrinsic
def _timespec(_typing, _seconds, _nanoseconds):
    """The address of a struct timespec in the caller's frame: kernels have no heap."""

    def generate(context, builder, signature, args):
        words = cgutils.alloca_once(builder, _i64(), size=2)
        for i in range(2):
            value = context.cast(builder, args[i], signature.args[i], types.int64)
            builder.store(value, builder.gep(words, [ir.Constant(_i64(), i)]))
        return builder.ptrtoint(words, _i64())

    return types.int64(_seconds, _nanoseconds), generate


@kernel
def futex_wait(words, index, expected, timeout_ns):
    """Sleep until woken while the word's low half equals `expected`; at most timeout_ns.

    Returns 0, or -1 if the word differed, the time was over or a signal arrived: check again.
    """
    timeout = _timespec(timeout_ns // 1_000_000_000, timeout_ns % 1_000_000_000)
    low_half = expected & 0xFFFFFFFF
    return libc.syscall(_SYS_FUTEX, address(words, index), _FUTEX_WAIT, low_half, timeout, 0, 0)


@kernel
def futex_wake(words, index, count):
    """Wake up to `count` sleepers; returns how many."""
    return libc.syscall(_SYS_FUTEX, address(words, index), _FUTEX_WAKE, count, 0, 0, 0)
