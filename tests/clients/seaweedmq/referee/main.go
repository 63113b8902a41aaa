// Publishes and subscribes by SeaweedMQ's own client libraries, unmodified.
//
//	referee agent-publish    ADDRESS NAMESPACE TOPIC PARTITIONS FIRST COUNT
//	referee agent-subscribe  ADDRESS NAMESPACE TOPIC GROUP COUNT MAX_PARTITIONS WINDOW
//	referee broker-publish   ADDRESS NAMESPACE TOPIC PARTITIONS FIRST COUNT
//	referee broker-subscribe ADDRESS NAMESPACE TOPIC GROUP COUNT
//	referee broker-seek      ADDRESS NAMESPACE TOPIC COUNT [TYPE NUMBER]...
//
// Records are numbers in a field "id", with a key of their own. A subscriber prints those that it
// has read, a line each, once it has so many. The one that seeks is made of the module's generated
// stubs, as no library of it can: after each seek it reads to the last of COUNT records of the first
// partition, and prints a line of what it has read, or the error.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/seaweedfs/seaweedfs/weed/mq/client/agent_client"
	"github.com/seaweedfs/seaweedfs/weed/mq/client/pub_client"
	"github.com/seaweedfs/seaweedfs/weed/mq/client/sub_client"
	"github.com/seaweedfs/seaweedfs/weed/mq/schema"
	"github.com/seaweedfs/seaweedfs/weed/mq/topic"
	"github.com/seaweedfs/seaweedfs/weed/pb/mq_pb"
	"github.com/seaweedfs/seaweedfs/weed/pb/schema_pb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

var recordType = schema.RecordTypeBegin().WithField("id", schema.TypeInt64).RecordTypeEnd()

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	must(err)
	return found
}

func record(id int) ([]byte, *schema_pb.RecordValue) {
	value := schema.RecordBegin().SetInt64("id", int64(id)).RecordEnd()
	return []byte(fmt.Sprintf("key-%d", id)), value
}

func agentPublish(address, namespace, name string, partitions, first, count int) {
	found := schema.NewSchema(namespace, name, recordType)
	session, err := agent_client.NewPublishSession(address, found, partitions, "referee")
	must(err)
	for id := first; id < first+count; id++ {
		key, value := record(id)
		must(session.PublishMessageRecord(key, value))
	}
	must(session.CloseSession())
	// It reads no answers, and has no call that waits: what is on its way ends with it. So it stays
	// until its input ends.
	io.Copy(io.Discard, os.Stdin)
}

func agentSubscribe(address, namespace, name, group string, count, partitions, window int) {
	session, err := agent_client.NewSubscribeSession(address, &agent_client.SubscribeOption{
		ConsumerGroup:           group,
		ConsumerGroupInstanceId: "referee",
		Topic:                   topic.NewTopic(namespace, name),
		OffsetType:              schema_pb.OffsetType_RESUME_OR_EARLIEST,
		MaxSubscribedPartitions: int32(partitions),
		SlidingWindowSize:       int32(window),
	})
	must(err)
	seen := 0
	session.SubscribeMessageRecord(func(key []byte, value *schema_pb.RecordValue) {
		if value == nil { // The end of the stream, for which it has no other call.
			return
		}
		fmt.Println(value.Fields["id"].GetInt64Value())
		if seen++; seen == count {
			session.CloseSession()
		}
	}, func() {})
}

func brokerPublish(address, namespace, name string, partitions, first, count int) {
	publisher, err := pub_client.NewTopicPublisher(&pub_client.PublisherConfiguration{
		Topic:          topic.NewTopic(namespace, name),
		PartitionCount: int32(partitions),
		Brokers:        []string{address},
		PublisherName:  "referee",
		RecordType:     recordType,
	})
	must(err)
	for id := first; id < first+count; id++ {
		key, value := record(id)
		must(publisher.PublishRecord(key, value))
	}
	must(publisher.FinishPublish())
	must(publisher.Shutdown())
}

func brokerSubscribe(address, namespace, name, group string, count int) {
	done := make(chan struct{})
	var lock sync.Mutex
	seen := 0
	acks := make(chan sub_client.KeyedTimestamp, 1024)
	subscriber := sub_client.NewTopicSubscriber(context.Background(), []string{address},
		&sub_client.SubscriberConfiguration{
			ClientId:                "referee",
			ConsumerGroup:           group,
			ConsumerGroupInstanceId: "referee",
			GrpcDialOption:          grpc.WithTransportCredentials(insecure.NewCredentials()),
			MaxPartitionCount:       8,
			SlidingWindowSize:       64,
		},
		&sub_client.ContentConfiguration{
			Topic:      topic.NewTopic(namespace, name),
			OffsetType: schema_pb.OffsetType_RESUME_OR_EARLIEST,
		}, acks)
	subscriber.SetOnDataMessageFn(func(found *mq_pb.SubscribeMessageResponse_Data) {
		value := &schema_pb.RecordValue{}
		must(proto.Unmarshal(found.Data.Value, value))
		lock.Lock()
		defer lock.Unlock()
		fmt.Println(value.Fields["id"].GetInt64Value())
		if seen++; seen == count {
			close(done)
		}
	})
	go subscriber.Subscribe()
	<-done
	time.Sleep(time.Second) // It acknowledges behind this function's back, and cannot be closed.
}

func brokerSeek(address, namespace, name string, count int, seeks []string) {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(err)
	broker := mq_pb.NewSeaweedMessagingClient(connection)
	topic := &schema_pb.Topic{Namespace: namespace, Name: name}
	found, err := broker.LookupTopicBrokers(context.Background(), &mq_pb.LookupTopicBrokersRequest{Topic: topic})
	must(err)
	stream, err := broker.SubscribeMessage(context.Background())
	must(err)
	must(stream.Send(&mq_pb.SubscribeMessageRequest{Message: &mq_pb.SubscribeMessageRequest_Init{
		Init: &mq_pb.SubscribeMessageRequest_InitMessage{
			ConsumerGroup:     "seekers",
			ConsumerId:        "referee",
			Topic:             topic,
			PartitionOffset:   &schema_pb.PartitionOffset{Partition: found.BrokerPartitionAssignments[0].Partition},
			OffsetType:        schema_pb.OffsetType_RESET_TO_EARLIEST,
			SlidingWindowSize: int32(count),
		},
	}}))
	fmt.Println(readToLast(stream, count, true))
	for ; len(seeks) > 0; seeks = seeks[2:] {
		offset, err := strconv.ParseInt(seeks[1], 10, 64)
		must(err)
		must(stream.Send(&mq_pb.SubscribeMessageRequest{Message: &mq_pb.SubscribeMessageRequest_Seek{
			Seek: &mq_pb.SubscribeMessageRequest_SeekMessage{
				Offset:     offset,
				OffsetType: schema_pb.OffsetType(number(seeks[0])),
			},
		}}))
		fmt.Println(readToLast(stream, count, false))
	}
}

// What comes up to the last record, and, unless isDone, until a control message says that a seek is done.
func readToLast(stream mq_pb.SeaweedMessaging_SubscribeMessageClient, count int, isDone bool) (line string) {
	isLast := false
	for !(isLast && isDone) {
		found, err := stream.Recv()
		must(err)
		if ctrl := found.GetCtrl(); ctrl != nil {
			if ctrl.Error != "" {
				return ctrl.Error
			}
			isDone = true
			continue
		}
		value := &schema_pb.RecordValue{}
		must(proto.Unmarshal(found.GetData().Value, value))
		id := value.Fields["id"].GetInt64Value()
		isLast = id == int64(count-1)
		line += fmt.Sprint(id, " ")
	}
	return
}

func main() {
	what, a := os.Args[1], os.Args[2:]
	switch what {
	case "agent-publish":
		agentPublish(a[0], a[1], a[2], number(a[3]), number(a[4]), number(a[5]))
	case "agent-subscribe":
		agentSubscribe(a[0], a[1], a[2], a[3], number(a[4]), number(a[5]), number(a[6]))
	case "broker-publish":
		brokerPublish(a[0], a[1], a[2], number(a[3]), number(a[4]), number(a[5]))
	case "broker-subscribe":
		brokerSubscribe(a[0], a[1], a[2], a[3], number(a[4]))
	case "broker-seek":
		brokerSeek(a[0], a[1], a[2], number(a[3]), a[4:])
	default:
		must(fmt.Errorf("there is no %s", what))
	}
}
