// A shop's orders by SeaweedMQ's own Go libraries, unmodified.
//
//	smq serve --grpc-port 17777 --agent-port 16777
//	go run . localhost:17777 localhost:16777
//
// pub_client publishes typed orders to the broker service; a group then reads them by agent_client,
// and goes on there the next time. Kafka's clients see the same records in the topic shop.orders.
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/seaweedfs/seaweedfs/weed/mq/client/agent_client"
	"github.com/seaweedfs/seaweedfs/weed/mq/client/pub_client"
	"github.com/seaweedfs/seaweedfs/weed/mq/schema"
	"github.com/seaweedfs/seaweedfs/weed/mq/topic"
	"github.com/seaweedfs/seaweedfs/weed/pb/schema_pb"
)

var orders = topic.NewTopic("shop", "orders")

var orderType = schema.RecordTypeBegin().
	WithField("country", schema.TypeString).
	WithField("euros", schema.TypeDouble).
	RecordTypeEnd()

func order(country string, euros float64) *schema_pb.RecordValue {
	return schema.RecordBegin().SetString("country", country).SetDouble("euros", euros).RecordEnd()
}

// Publish returns once the broker has acknowledged all orders.
func publish(broker string, found map[string]*schema_pb.RecordValue) {
	publisher, err := pub_client.NewTopicPublisher(&pub_client.PublisherConfiguration{
		Topic:          orders,
		PartitionCount: 2,
		Brokers:        []string{broker},
		PublisherName:  "shop",
		RecordType:     orderType,
	})
	check(err)
	for key, value := range found {
		check(publisher.PublishRecord([]byte(key), value))
	}
	check(publisher.FinishPublish())
	check(publisher.Shutdown())
}

// Bill adds up so many orders of a country, from where its group was the last time.
func bill(agent, country string, count int) (euros float64) {
	session, err := agent_client.NewSubscribeSession(agent, &agent_client.SubscribeOption{
		ConsumerGroup:           "bills-" + country,
		ConsumerGroupInstanceId: "bill-1",
		Topic:                   orders,
		OffsetType:              schema_pb.OffsetType_RESUME_OR_EARLIEST,
		Filter:                  fmt.Sprintf("country = '%s'", country),
	})
	check(err)
	session.SubscribeMessageRecord(func(_ []byte, value *schema_pb.RecordValue) {
		if value == nil { // The end of the stream.
			return
		}
		euros += value.Fields["euros"].GetDoubleValue()
		if count--; count == 0 {
			session.CloseSession()
		}
	}, nil)
	return euros
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	broker, agent := os.Args[1], os.Args[2]
	found := map[string]*schema_pb.RecordValue{
		"order-1": order("NL", 12.5),
		"order-2": order("BE", 99),
		"order-3": order("NL", 30),
	}
	publish(broker, found)
	fmt.Printf("%d orders are in the log\n", len(found))
	fmt.Printf("NL has bought for %.2f euros\n", bill(agent, "NL", 2))
}
