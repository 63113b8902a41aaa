"""The numbers of RPCs: their counters in shared memory have these places."""

from smq.model.rpcs import RPCS, STATUSES


def test_an_rpc_and_a_status_keep_their_places() -> None:
    assert RPCS[0] == ("messaging_pb.SeaweedMessaging", "FindBrokerLeader")
    assert RPCS[-2] == ("grpc.health.v1.Health", "Watch")
    assert RPCS[-1] == ("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo")
    assert len({*RPCS}) == len(RPCS)
    assert (STATUSES[5], STATUSES[16]) == ("NOT_FOUND", "UNAUTHENTICATED")
