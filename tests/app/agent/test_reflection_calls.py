"""Reflection: what a tool learns of a port is enough to call its services, and no more."""

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from smq.agent.proto import mq_broker_pb2, reflection_pb2 as pb
from smq.app.agent.reflection_calls import ReflectionCalls
from tests.app.agent.doors import Doors, stubs_of

pytestmark = pytest.mark.timeout(120)

BROKER = mq_broker_pb2.DESCRIPTOR.services_by_name["SeaweedMessaging"]
R = pb.ServerReflectionRequest


def answer_of(request: pb.ServerReflectionRequest) -> pb.ServerReflectionResponse:
    answer = pb.ServerReflectionResponse()
    ReflectionCalls([BROKER])._answer(request, answer)
    return answer


@pytest.mark.slow
def test_a_tool_learns_both_ports_services_from_the_ports(doors: Doors) -> None:
    status = doors.smq.status()
    for address, own in (
        (status.grpc, "messaging_pb.SeaweedMessaging"),
        (status.agent, "messaging_pb.SeaweedMessagingAgent"),
    ):
        with grpc.insecure_channel(address) as channel:
            stub = stubs_of(pb.DESCRIPTOR.services_by_name["ServerReflection"], channel)
            asked = [R(list_services="*"), R(file_containing_symbol=own)]
            services, file = stub.ServerReflectionInfo(iter(asked))
            names = {each.name for each in services.list_services_response.service}
            assert names == {own, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"}
            pool = DescriptorPool()
            for each in file.file_descriptor_response.file_descriptor_proto:
                pool.Add(FileDescriptorProto.FromString(each))
            assert pool.FindServiceByName(own).methods


@pytest.mark.parametrize(
    "symbol",
    [
        "messaging_pb.SeaweedMessaging",
        "messaging_pb.PublishMessageRequest.InitMessage",
        "schema_pb.OffsetType",
    ],
)
def test_a_symbol_leads_to_its_file_and_all_that_it_imports(symbol: str) -> None:
    found = answer_of(R(file_containing_symbol=symbol))
    files = found.file_descriptor_response.file_descriptor_proto
    pool = DescriptorPool()
    for each in files:
        pool.Add(FileDescriptorProto.FromString(each))
    assert pool.FindFileContainingSymbol(symbol)
    [*_, last] = [FileDescriptorProto.FromString(each).name for each in files]
    assert answer_of(R(file_by_filename=last)).file_descriptor_response == (
        found.file_descriptor_response
    )


def test_a_method_leads_to_the_file_of_its_service() -> None:
    service, method = (
        answer_of(R(file_containing_symbol=f"messaging_pb.SeaweedMessaging{name}"))
        for name in ("", ".FetchMessage")
    )
    assert method.file_descriptor_response == service.file_descriptor_response


def test_a_port_tells_nothing_of_files_and_symbols_of_others() -> None:
    for request in (
        R(file_by_filename="google/protobuf/descriptor.proto"),
        R(file_containing_symbol="google.protobuf.FileDescriptorProto"),
        R(file_containing_extension=pb.ExtensionRequest(containing_type="x", extension_number=1)),
        R(all_extension_numbers_of_type="x"),
    ):
        assert answer_of(request).error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    known = answer_of(R(all_extension_numbers_of_type="schema_pb.Topic"))
    assert known.all_extension_numbers_response.extension_number == []
    assert answer_of(R()).error_response.error_code == grpc.StatusCode.UNIMPLEMENTED.value[0]
