"""The C library's functions that kernels call: `libc.send(...)`. No other file declares any.

Arguments are as in the manual pages; a pointer is an address in an int64
(`shm.kernels.base.atomics.address`). Each returns what C returns. A result below 0 is an error;
kernels cannot read `errno`.
"""

from numba import types

_i32, _i64, _u32 = types.int32, types.int64, types.uint32

clock_gettime = types.ExternalFunction("clock_gettime", _i32(_i32, _i64))
epoll_wait = types.ExternalFunction("epoll_wait", _i32(_i32, _i64, _i32, _i32))
fdatasync = types.ExternalFunction("fdatasync", _i32(_i32))
poll = types.ExternalFunction("poll", _i32(_i64, _i64, _i32))
pwrite = types.ExternalFunction("pwrite", _i64(_i32, _i64, _i64, _i64))
recv = types.ExternalFunction("recv", _i64(_i32, _i64, _i64, _i32))
sched_yield = types.ExternalFunction("sched_yield", _i32())
send = types.ExternalFunction("send", _i64(_i32, _i64, _i64, _i32))
sendmsg = types.ExternalFunction("sendmsg", _i64(_i32, _i64, _i32))
statx = types.ExternalFunction("statx", _i32(_i32, _i64, _i32, _u32, _i64))
syscall = types.ExternalFunction("syscall", _i64(_i64, _i64, _i64, _i64, _i64, _i64, _i64))
write = types.ExternalFunction("write", _i64(_i32, _i64, _i64))

CLOCK_REALTIME, CLOCK_MONOTONIC = 0, 1
EPOLLIN = POLLIN = 1
POLLOUT = 4
MSG_DONTWAIT, MSG_NOSIGNAL = 0x40, 0x4000
