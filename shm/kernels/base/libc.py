"""The C library's functions that kernels call: `libc.send(...)`. No other file declares any.

Arguments are as in the manual pages; a pointer is an address in an int64
(`shm.kernels.base.atomics.address`). Each returns what C returns. A result below 0 is an error;
kernels cannot read `errno`.
"""

from shm.kernels.base.later import external

_I32, _I64, _U32 = "int32", "int64", "uint32"

clock_gettime = external("clock_gettime", _I32, _I32, _I64)
epoll_wait = external("epoll_wait", _I32, _I32, _I64, _I32, _I32)
fdatasync = external("fdatasync", _I32, _I32)
poll = external("poll", _I32, _I64, _I64, _I32)
pwrite = external("pwrite", _I64, _I32, _I64, _I64, _I64)
read = external("read", _I64, _I32, _I64, _I64)
recv = external("recv", _I64, _I32, _I64, _I64, _I32)
sched_yield = external("sched_yield", _I32)
send = external("send", _I64, _I32, _I64, _I64, _I32)
sendmsg = external("sendmsg", _I64, _I32, _I64, _I32)
statx = external("statx", _I32, _I32, _I64, _I32, _U32, _I64)
syscall = external("syscall", _I64, _I64, _I64, _I64, _I64, _I64, _I64, _I64)
write = external("write", _I64, _I32, _I64, _I64)

CLOCK_REALTIME, CLOCK_MONOTONIC = 0, 1
EPOLLIN = POLLIN = 1
POLLOUT = 4
MSG_DONTWAIT, MSG_NOSIGNAL = 0x40, 0x4000
