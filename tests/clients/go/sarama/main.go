// Sarama, with its default version of Kafka.
package main

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"smq.test/clients/contract"
)

// Sarama leaves SCRAM to a library of the program's choice.
type exchange struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (own *exchange) Begin(user, password, authorizationID string) error {
	client, err := own.hash.NewClient(user, password, authorizationID)
	if err == nil {
		own.conversation = client.NewConversation()
	}
	return err
}

func (own *exchange) Step(challenge string) (string, error) { return own.conversation.Step(challenge) }

func (own *exchange) Done() bool { return own.conversation.Done() }

// A token that never changes.
type bearer string

func (own bearer) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(own)}, nil
}

func logIn(made *sarama.Config) {
	login := contract.ReadLogin()
	if config := login.TLS(); config != nil {
		made.Net.TLS.Enable, made.Net.TLS.Config = true, config
	}
	if login.Mechanism == "" {
		return
	}
	made.Net.SASL.Enable = true
	made.Net.SASL.Mechanism = sarama.SASLMechanism(login.Mechanism)
	made.Net.SASL.User, made.Net.SASL.Password = login.Username, login.Password
	made.Net.SASL.TokenProvider = bearer(login.Password)
	hash := scram.SHA512
	if login.Mechanism == sarama.SASLTypeSCRAMSHA256 {
		hash = scram.SHA256
	}
	made.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &exchange{hash: hash} }
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.ClientID = "sarama-test"
	made.Producer.Return.Successes = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Compression = sarama.CompressionLZ4
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.IsolationLevel = sarama.ReadCommitted
	logIn(made)
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
	err = producer.SendMessages(messages)
	var failed sarama.ProducerErrors
	if errors.As(err, &failed) { // It does not say why.
		err = failed[0].Err
	}
	contract.Must(err)
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
