// kafka-go: its Writer, and its Reader with the old fixed versions of requests.
package main

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go"

	"smq.test/clients/contract"
)

func produce(task contract.Task) {
	writer := &kafka.Writer{
		Addr: kafka.TCP(task.Bootstrap...), Topic: task.Topic, Balancer: &kafka.Hash{},
		Compression: kafka.Gzip, RequiredAcks: kafka.RequireAll, BatchTimeout: 5 * time.Millisecond,
	}
	messages := make([]kafka.Message, task.Count)
	for number := range messages {
		key, value := contract.Record(number)
		messages[number] = kafka.Message{Key: key, Value: value,
			Headers: []kafka.Header{{Key: "n", Value: value}}}
	}
	contract.Must(writer.WriteMessages(context.Background(), messages...))
	contract.Must(writer.Close())
}

func read(task contract.Task, count int) (reading contract.Reading) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: task.Bootstrap, GroupID: task.Group, Topic: task.Topic,
		IsolationLevel: kafka.ReadCommitted, StartOffset: kafka.FirstOffset, MaxWait: 100 * time.Millisecond,
	})
	for len(reading.Values) < count {
		message, err := reader.FetchMessage(context.Background())
		contract.Must(err)
		var header []byte
		if len(message.Headers) > 0 && message.Headers[0].Key == "n" {
			header = message.Headers[0].Value
		}
		reading.Take(message.Key, message.Value, len(message.Headers), header)
		contract.Must(reader.CommitMessages(context.Background(), message))
	}
	contract.Must(reader.Close())
	return reading
}

func resume(task contract.Task) {
	produce(task)
	first := read(task, task.Half())
	contract.ReportHalves(first, read(task, task.Count-task.Half()))
}

func onlyRead(task contract.Task) { contract.ReportAll(read(task, task.Count)) }

func main() { contract.Run(map[string]func(contract.Task){"resume": resume, "read": onlyRead}) }
