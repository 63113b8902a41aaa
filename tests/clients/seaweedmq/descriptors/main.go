// Prints the names, numbers, types and labels of SeaweedMQ's API, as its own Go module has them: a
// line each, sorted. `python -m tests.agent.seaweedmq` prints SMQ's in the same way.
package main

import (
	"fmt"
	"sort"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"github.com/seaweedfs/seaweedfs/weed/pb/mq_agent_pb"
	"github.com/seaweedfs/seaweedfs/weed/pb/mq_pb"
	"github.com/seaweedfs/seaweedfs/weed/pb/schema_pb"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var lines []string

func say(format string, arguments ...any) {
	lines = append(lines, fmt.Sprintf(format, arguments...))
}

func message(found protoreflect.MessageDescriptor) {
	say("message %s", found.FullName())
	for i := 0; i < found.Fields().Len(); i++ {
		field := found.Fields().Get(i)
		kind, of := field.Kind().String(), "-"
		if field.Message() != nil {
			kind = string(field.Message().FullName())
		} else if field.Enum() != nil {
			kind = string(field.Enum().FullName())
		}
		if field.ContainingOneof() != nil {
			of = string(field.ContainingOneof().Name())
		}
		say("field %s %d %s %s %s", field.FullName(), field.Number(), field.Cardinality(), kind, of)
	}
	for i := 0; i < found.Messages().Len(); i++ {
		message(found.Messages().Get(i))
	}
}

func file(found protoreflect.FileDescriptor) {
	for i := 0; i < found.Messages().Len(); i++ {
		message(found.Messages().Get(i))
	}
	for i := 0; i < found.Enums().Len(); i++ {
		values := found.Enums().Get(i).Values()
		for j := 0; j < values.Len(); j++ {
			say("value %s %s %d", found.Enums().Get(i).FullName(), values.Get(j).Name(), values.Get(j).Number())
		}
	}
	for i := 0; i < found.Services().Len(); i++ {
		methods := found.Services().Get(i).Methods()
		for j := 0; j < methods.Len(); j++ {
			method := methods.Get(j)
			say("rpc %s %s %t %s %t", method.FullName(), method.Input().FullName(), method.IsStreamingClient(),
				method.Output().FullName(), method.IsStreamingServer())
		}
	}
}

func main() {
	file(schema_pb.File_mq_schema_proto)
	file(mq_pb.File_mq_broker_proto)
	file(mq_agent_pb.File_mq_agent_proto)
	message((&filer_pb.LogEntry{}).ProtoReflect().Descriptor())
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
}
