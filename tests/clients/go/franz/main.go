// franz-go.
package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"smq.test/clients/contract"
)

func login() (options []kgo.Opt) {
	given := contract.ReadLogin()
	if config := given.TLS(); config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	scrams := scram.Auth{User: given.Username, Pass: given.Password}
	mechanism, found := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: given.Username, Pass: given.Password}.AsMechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: given.Password}.AsMechanism(),
		"SCRAM-SHA-256": scrams.AsSha256Mechanism(),
		"SCRAM-SHA-512": scrams.AsSha512Mechanism(),
	}[given.Mechanism]
	if found {
		options = append(options, kgo.SASL(mechanism))
	}
	return options
}

func client(task contract.Task, options ...kgo.Opt) *kgo.Client {
	options = append(options, login()...)
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(task.Bootstrap...))...)
	contract.Must(err)
	return made
}

func consumer(task contract.Task) *kgo.Client {
	return client(task, kgo.ConsumerGroup(task.Group), kgo.ConsumeTopics(task.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
}

func take(reading *contract.Reading, record *kgo.Record) {
	var header []byte
	if len(record.Headers) > 0 && record.Headers[0].Key == "n" {
		header = record.Headers[0].Value
	}
	reading.Take(record.Key, record.Value, len(record.Headers), header)
}

func record(task contract.Task, number int) *kgo.Record {
	key, value := contract.Record(number)
	return &kgo.Record{Topic: task.Topic, Key: key, Value: value,
		Headers: []kgo.RecordHeader{{Key: "n", Value: value}}}
}

func read(task contract.Task, count int) (reading contract.Reading) {
	ctx := context.Background()
	group := consumer(task)
	for len(reading.Values) < count {
		records := group.PollRecords(ctx, count-len(reading.Values)).Records()
		for _, record := range records {
			take(&reading, record)
		}
		contract.Must(group.CommitRecords(ctx, records...))
	}
	group.Close()
	return reading
}

func resume(task contract.Task) {
	producer := client(task, kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	for number := range task.Count {
		producer.Produce(context.Background(), record(task, number), func(_ *kgo.Record, err error) { contract.Must(err) })
	}
	contract.Must(producer.Flush(context.Background()))
	producer.Close()
	first := read(task, task.Half())
	contract.ReportHalves(first, read(task, task.Count-task.Half()))
}

func throughAKill(task contract.Task) {
	produced := make(chan bool)
	go func() {
		producer := client(task, kgo.ProducerBatchCompression(kgo.SnappyCompression()))
		var acknowledged atomic.Int64
		for number := range task.Count {
			producer.Produce(context.Background(), record(task, number), func(_ *kgo.Record, err error) {
				contract.Must(err)
				if acknowledged.Add(1) == int64(task.Half()) {
					contract.Halfway()
				}
			})
			time.Sleep(contract.Pause)
		}
		contract.Must(producer.Flush(context.Background()))
		producer.Close()
		close(produced)
	}()
	group := consumer(task)
	var all contract.Reading
	for all.Different() < task.Count {
		group.PollFetches(context.Background()).EachRecord(func(record *kgo.Record) { take(&all, record) })
	}
	<-produced
	group.Close()
	contract.ReportAll(all)
}

func onlyRead(task contract.Task) { contract.ReportAll(read(task, task.Count)) }

func main() {
	contract.Run(map[string]func(contract.Task){
		"resume": resume, "read": onlyRead, "through-a-kill": throughAKill,
	})
}
