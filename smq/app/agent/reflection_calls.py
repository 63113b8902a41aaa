"""gRPC's reflection service: tools like `grpcurl` learn from it what a port's services are.

It tells the files of the port's own services and of what they import, and nothing else of the
process. Extensions it has none. Where callers log in, so do those
who ask here: its calls come through the port's gate.
"""

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor

from smq.agent.proto import reflection_pb2 as pb
from smq.app.agent.methods import Context, Handler

_NOT_FOUND = grpc.StatusCode.NOT_FOUND.value[0]
_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED.value[0]


class ReflectionCalls:
    """Answers for the services of one port."""

    def __init__(self, services: Iterable[ServiceDescriptor]) -> None:
        self._services = [*services]
        self._files: dict[str, FileDescriptor] = {}
        self._homes: dict[str, FileDescriptor] = {}
        for each in self._services:
            self._add(each.file)

    def handlers(self) -> dict[str, Handler]:
        """The calls, by name."""
        return {"ServerReflectionInfo": self._info}

    def _add(self, file: FileDescriptor) -> None:
        if file.name in self._files:
            return
        self._files[file.name] = file
        for each in file.services_by_name.values():
            self._homes |= {each.full_name: file} | {m.full_name: file for m in each.methods}
        for each in file.message_types_by_name.values():
            self._add_message(each, file)
        for each in file.enum_types_by_name.values():
            self._homes[each.full_name] = file
        for each in file.dependencies:
            self._add(each)

    def _add_message(self, message: Any, file: FileDescriptor) -> None:  # noqa: ANN401  (its Descriptor is a C type)
        self._homes[message.full_name] = file
        for each in message.nested_types:
            self._add_message(each, file)
        for each in message.enum_types:
            self._homes[each.full_name] = file

    async def _info(self, _: Any, context: Context) -> None:  # noqa: ANN401
        while (request := await context.read()) is not grpc.aio.EOF:
            answer = pb.ServerReflectionResponse(valid_host=request.host, original_request=request)
            self._answer(request, answer)
            await context.write(answer)

    def _answer(
        self, request: pb.ServerReflectionRequest, answer: pb.ServerReflectionResponse
    ) -> None:
        match request.WhichOneof("message_request"):
            case "list_services":
                found = [pb.ServiceResponse(name=each.full_name) for each in self._services]
                answer.list_services_response.service.extend(found)
            case "file_by_filename":
                self._tell(self._files.get(request.file_by_filename), answer)
            case "file_containing_symbol":
                self._tell(self._homes.get(request.file_containing_symbol), answer)
            case "file_containing_extension":
                self._tell(None, answer)
            case "all_extension_numbers_of_type":
                asked = request.all_extension_numbers_of_type
                if asked in self._homes:
                    answer.all_extension_numbers_response.base_type_name = asked
                else:
                    self._tell(None, answer)
            case _:
                answer.error_response.error_code = _UNIMPLEMENTED
                answer.error_response.error_message = "the request asks for nothing known"

    def _tell(self, file: FileDescriptor | None, answer: pb.ServerReflectionResponse) -> None:
        """A file, behind what it imports: a reader can take them as they come."""
        if file is None:
            answer.error_response.error_code = _NOT_FOUND
            answer.error_response.error_message = "this port's services have none of this name"
            return
        needed: dict[str, bytes] = {}
        _collect(file, needed)
        answer.file_descriptor_response.file_descriptor_proto.extend(needed.values())


def _collect(file: FileDescriptor, into: dict[str, bytes]) -> None:
    for each in file.dependencies:
        if each.name not in into:
            _collect(each, into)
    into[file.name] = file.serialized_pb
