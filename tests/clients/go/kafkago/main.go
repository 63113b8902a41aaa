// kafka-go: its Writer, and its Reader with the old fixed versions of requests.
package main

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"smq.test/clients/contract"
)

func mechanism(login contract.Login) (made sasl.Mechanism) {
	var err error
	switch login.Mechanism {
	case "PLAIN":
		made = plain.Mechanism{Username: login.Username, Password: login.Password}
	case "SCRAM-SHA-256":
		made, err = scram.Mechanism(scram.SHA256, login.Username, login.Password)
	case "SCRAM-SHA-512":
		made, err = scram.Mechanism(scram.SHA512, login.Username, login.Password)
	}
	contract.Must(err)
	return made
}

func produce(task contract.Task) {
	login := contract.ReadLogin()
	writer := &kafka.Writer{
		Transport: &kafka.Transport{TLS: login.TLS(), SASL: mechanism(login)},
		Addr:      kafka.TCP(task.Bootstrap...), Topic: task.Topic, Balancer: &kafka.Hash{},
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
	login := contract.ReadLogin()
	dialer := &kafka.Dialer{
		Timeout: 10 * time.Second, TLS: login.TLS(), SASLMechanism: mechanism(login),
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Dialer: dialer, Brokers: task.Bootstrap, GroupID: task.Group, Topic: task.Topic,
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
