// Sarama, with its default version of Kafka.
package main

import (
	"context"

	"github.com/IBM/sarama"

	"smq.test/clients/contract"
)

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.ClientID = "sarama-test"
	made.Producer.Return.Successes = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Compression = sarama.CompressionLZ4
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.IsolationLevel = sarama.ReadCommitted
	return made
}

func produce(task contract.Task) {
	producer, err := sarama.NewSyncProducer(task.Bootstrap, config())
	contract.Must(err)
	messages := make([]*sarama.ProducerMessage, task.Count)
	for number := range messages {
		key, value := contract.Record(number)
		messages[number] = &sarama.ProducerMessage{
			Topic: task.Topic, Key: sarama.ByteEncoder(key), Value: sarama.ByteEncoder(value),
			Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: value}},
		}
	}
	contract.Must(producer.SendMessages(messages))
	contract.Must(producer.Close())
}

type member struct {
	reading  contract.Reading
	messages chan *sarama.ConsumerMessage
	taken    chan bool
}

func (*member) Setup(sarama.ConsumerGroupSession) error { return nil }

// All claims have ended: what they have marked is committed at once.
func (*member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

// A claim's goroutine hands each message over, and marks it when it has been counted.
func (own *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			select {
			case own.messages <- message:
				<-own.taken
				session.MarkMessage(message, "")
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func read(task contract.Task, count int) contract.Reading {
	group, err := sarama.NewConsumerGroup(task.Bootstrap, task.Group, config())
	contract.Must(err)
	own := &member{messages: make(chan *sarama.ConsumerMessage), taken: make(chan bool)}
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan bool)
	go func() {
		for ctx.Err() == nil {
			contract.Must(group.Consume(ctx, []string{task.Topic}, own))
		}
		close(left)
	}()
	for len(own.reading.Values) < count {
		message := <-own.messages
		var header []byte
		if len(message.Headers) > 0 && string(message.Headers[0].Key) == "n" {
			header = message.Headers[0].Value
		}
		own.reading.Take(message.Key, message.Value, len(message.Headers), header)
		own.taken <- true
	}
	cancel()
	<-left
	contract.Must(group.Close())
	return own.reading
}

func resume(task contract.Task) {
	produce(task)
	first := read(task, task.Half())
	contract.ReportHalves(first, read(task, task.Count-task.Half()))
}

func onlyRead(task contract.Task) { contract.ReportAll(read(task, task.Count)) }

func main() { contract.Run(map[string]func(contract.Task){"resume": resume, "read": onlyRead}) }
