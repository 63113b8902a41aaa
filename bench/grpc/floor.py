"""grpcio's own floor: a server whose streams carry bytes, and do nothing with them.

    python -m bench.grpc.floor RECORDS BYTES   RECORDS are what a stream of `subscribe` writes

It prints its address. `publish` answers every 128 records, as the brokers are asked to.
"""

import asyncio
import sys
from typing import Any

import grpc

ANSWER_EVERY = 128


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _answer(count: int) -> bytes:
    return b"\x08" + _varint(count)  # Field 1, as an acknowledgement.


async def _publish(_: Any, context: grpc.aio.ServicerContext) -> None:  # noqa: ANN401
    count = -1  # The first message is the stream's.
    while await context.read() is not grpc.aio.EOF:
        count += 1
        if count and count % ANSWER_EVERY == 0:
            await context.write(_answer(count))
    await context.write(_answer(count))


async def _serve(records: int, size_bytes: int) -> None:
    value = bytes(size_bytes)
    body = b"\x12" + _varint(len(value)) + value  # Field 2, as a record.

    async def subscribe(_: Any, context: grpc.aio.ServicerContext) -> None:  # noqa: ANN401
        await context.read()
        for _ in range(records):
            await context.write(body)

    handlers = {
        "publish": grpc.stream_stream_rpc_method_handler(_publish),
        "subscribe": grpc.stream_stream_rpc_method_handler(subscribe),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("floor", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
