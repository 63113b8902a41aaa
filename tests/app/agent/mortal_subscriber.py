"""A subscriber that a test kills: `python -m tests.app.agent.mortal_subscriber …`.

It writes what it gets, and what it is about to acknowledge, to a file, a line each:

    session partition offset time       of a record that has come
    ack partition offset time

Sessions are named by the time of their beginning. Times are of the monotonic clock, in nanoseconds.
"""

import os
import sys
import time
from queue import SimpleQueue
from typing import Any

import grpc

from smq.agent.proto import mq_agent_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Topic
from tests.app.agent.doors import stubs_of

WINDOW = 50
AGAIN_S = 0.1


def serve(address: str, topic: Topic, group: str, instance: str, path: str) -> None:
    """Subscribe for ever, again and again."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    init = pb.SubscribeRecordRequest.InitSubscribeRecordRequest(
        topic=topic,
        consumer_group=group,
        consumer_group_instance_id=instance,
        sliding_window_size=WINDOW,
    )
    while True:
        session = time.monotonic_ns()
        with grpc.insecure_channel(address) as channel:
            requests: SimpleQueue[Any] = SimpleQueue()
            requests.put(pb.SubscribeRecordRequest(init=init))
            service = pb.DESCRIPTOR.services_by_name["SeaweedMessagingAgent"]
            stream = stubs_of(service, channel).SubscribeRecord(
                iter(requests.get, None),
                metadata=(("smq-ack", "explicit"),),
                wait_for_ready=True,
                timeout=None,
            )
            try:
                for each in stream:
                    if each.HasField("value"):
                        place = f"{each.partition} {each.offset} {time.monotonic_ns()}"
                        os.write(log, f"{session} {place}\nack {place}\n".encode())
                        ack = pb.SubscribeRecordRequest(
                            offset=each.offset, ack_partition=each.partition
                        )
                        requests.put(ack)
            except grpc.RpcError:
                pass
            finally:
                requests.put(None)
        time.sleep(AGAIN_S)


if __name__ == "__main__":
    _, at, namespace, name, *rest = sys.argv
    serve(at, Topic(namespace=namespace, name=name), *rest)
