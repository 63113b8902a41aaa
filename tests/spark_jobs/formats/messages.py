"""Message types for tests, without protoc."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.message import Message

Field = descriptor_pb2.FieldDescriptorProto


def descriptors() -> bytes:
    """A descriptor set with shop.Order, shop.Tree (recursive), shop.Empty."""
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="BIG", number=1)
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="_note")
    fields: list[tuple[str, Any, dict[str, Any]]] = [
        ("user", Field.TYPE_STRING, {}),
        ("amount", Field.TYPE_DOUBLE, {}),
        ("large", Field.TYPE_UINT64, {}),
        ("note", Field.TYPE_STRING, {"proto3_optional": True, "oneof_index": 0}),
        ("at", Field.TYPE_MESSAGE, {"type_name": ".google.protobuf.Timestamp"}),
        ("kind", Field.TYPE_ENUM, {"type_name": ".shop.Kind"}),
        ("tags", Field.TYPE_STRING, {"label": Field.LABEL_REPEATED}),
        ("counts", Field.TYPE_MESSAGE,
         {"label": Field.LABEL_REPEATED, "type_name": ".shop.Order.CountsEntry"}),
        ("first", Field.TYPE_MESSAGE, {"type_name": ".shop.Line"}),
        ("lines", Field.TYPE_MESSAGE,
         {"label": Field.LABEL_REPEATED, "type_name": ".shop.Line"}),
    ]  # fmt: skip
    for number, (name, type_, more) in enumerate(fields, 1):
        order.field.add(name=name, number=number, type=type_, **{"label": 1, **more})
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT32, label=1)
    line = file.message_type.add(name="Line")
    line.field.add(name="n", number=1, type=Field.TYPE_SINT32, label=1)
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="left", number=1, type=Field.TYPE_MESSAGE, label=1, type_name=".shop.Tree")
    file.message_type.add(name="Empty")
    return bytes(files.SerializeToString())


def message(name: str) -> type[Message]:
    """The class of a type."""
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    found: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return found
