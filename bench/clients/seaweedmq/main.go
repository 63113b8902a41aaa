// Loads gRPC services that have SeaweedMQ's messages: bytes out, bytes in, nothing decoded but what
// tells the end. One line of JSON on standard input says what to do; one on standard output says how
// long it took.
//
//	publish     each stream sends its init and `count` records; it ends with the answer to the last
//	subscribe   each stream sends its init; all end together, with `count` records in all
//	fetch       one call after the other, from offset 0 on, until `count` records
//
// Records have `size` bytes of value. `agent` says whose messages they are: PublishRecord's values
// are a RecordValue with one field, and answers count; PublishMessage's echo nanoseconds.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

type order struct {
	Kind     string
	Address  string
	Method   string
	Agent    bool
	Inits    [][]byte // As base64.
	Count    int
	Size     int
	Answered bool // Whether publishers are answered: SeaweedMQ's agent does not.
	Base     int  // The first record's nanosecond; the others' follow.
}

// What the answer to the last record says: its nanosecond, or how many there were.
func (o *order) last() int {
	if o.Base == 0 {
		return o.Count
	}
	return o.Base + o.Count - 1
}

// Messages are the bytes that they are sent as.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (raw) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = data
	return nil
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The last varint of a field, and how often the field is there.
func field(message []byte, wanted protowire.Number) (value uint64, times int) {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			must(protowire.ParseError(size))
		}
		message = message[size:]
		if number == wanted {
			times++
			if kind == protowire.VarintType {
				value, _ = protowire.ConsumeVarint(message)
			}
		}
		size = protowire.ConsumeFieldValue(number, kind, message)
		if size < 0 {
			must(protowire.ParseError(size))
		}
		message = message[size:]
	}
	return
}

func bytesField(to []byte, number protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), data)
}

func varintField(to []byte, number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, number, protowire.VarintType), value)
}

func record(agent bool, value []byte, number int) []byte {
	if !agent {
		data := varintField(bytesField(nil, 2, value), 3, uint64(number))
		return bytesField(nil, 2, data)
	}
	entry := bytesField(bytesField(nil, 1, []byte("v")), 2, bytesField(nil, 6, value))
	message := bytesField(nil, 2, fmt.Appendf(nil, "k%d", number))
	return bytesField(message, 3, bytesField(nil, 1, entry))
}

func connect(address string) *grpc.ClientConn {
	found, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(128<<20)))
	must(err)
	return found
}

func open(to *grpc.ClientConn, o *order, init []byte) grpc.ClientStream {
	form := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	stream, err := to.NewStream(context.Background(), form, o.Method)
	must(err)
	must(stream.SendMsg(&init))
	return stream
}

func publish(o *order, stream grpc.ClientStream, done chan<- bool) {
	go func() {
		value := make([]byte, o.Size)
		for number := range o.Count {
			message := record(o.Agent, value, o.Base+number)
			must(stream.SendMsg(&message))
		}
		must(stream.CloseSend())
	}()
	for {
		var answer []byte
		err := stream.RecvMsg(&answer)
		if err != nil && !o.Answered { // SeaweedMQ's agent ends with an error of its own.
			done <- true
			return
		}
		must(err)
		if _, errors := field(answer, 2); errors > 0 {
			must(fmt.Errorf("refused: %q", answer))
		}
		if acked, _ := field(answer, 1); int(acked) >= o.last() {
			done <- true
			return
		}
	}
}

func subscribe(o *order, stream grpc.ClientStream, seen *atomic.Int64, done chan<- bool) {
	number := protowire.Number(2)
	if o.Agent {
		number = 3
	}
	for {
		var answer []byte
		err := stream.RecvMsg(&answer)
		if err == io.EOF {
			return // The others have the rest.
		}
		must(err)
		_, times := field(answer, number)
		if times > 0 && seen.Add(1) == int64(o.Count) {
			done <- true
		}
	}
}

func fetch(o *order, to *grpc.ClientConn) {
	offset, seen := uint64(0), 0
	for seen < o.Count {
		request, answer := varintField(append([]byte{}, o.Inits[0]...), 3, offset), []byte{}
		must(to.Invoke(context.Background(), o.Method, &request, &answer))
		_, messages := field(answer, 1)
		if _, errors := field(answer, 5); errors > 0 {
			must(fmt.Errorf("%d records, then %.200q", seen, answer))
		}
		seen += messages
		offset += uint64(messages)
	}
}

func main() {
	o := &order{}
	must(json.NewDecoder(os.Stdin).Decode(o))
	connection := connect(o.Address)
	began := time.Now()
	if o.Kind == "fetch" {
		fetch(o, connection)
	} else {
		done, seen := make(chan bool), &atomic.Int64{}
		for _, init := range o.Inits {
			stream := open(connection, o, init)
			if o.Kind == "publish" {
				go publish(o, stream, done)
			} else {
				go subscribe(o, stream, seen, done)
			}
		}
		ends := 1
		if o.Kind == "publish" {
			ends = len(o.Inits)
		}
		for range ends {
			<-done
		}
	}
	must(json.NewEncoder(os.Stdout).Encode(map[string]float64{"seconds": time.Since(began).Seconds()}))
}
