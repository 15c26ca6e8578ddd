// Kafka clients for Go against a running cluster.
//
// "go_clients CLIENT do ORDER" carries out one order and prints one JSON object; it exits with 1 on any error.
// "go_clients CLIENT members" hosts group members; their orders and events are those of member_program.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// A record as the tests write it. The partition is always given; keys and values may be missing.
type record struct {
	Partition int32       `json:"partition"`
	Offset    int64       `json:"offset"`
	Key       *string     `json:"key"`
	Value     *string     `json:"value"`
	Headers   [][2]string `json:"headers"`
}

// Which of the fields an order has depends on what it wants done.
type order struct {
	Do         string   `json:"do"`
	Servers    string   `json:"servers"`
	Topic      string   `json:"topic"`
	Partitions int32    `json:"partitions"`
	Replicas   int16    `json:"replicas"`
	Codec      string   `json:"codec"`
	Idempotent bool     `json:"idempotent"`
	Records    []record `json:"records"`
	Count      int      `json:"count"`
	Committed  bool     `json:"committed"` // read no records of aborted or open transactions
	TimeMs     int64    `json:"time_ms"`
	ID         string   `json:"id"`   // of a transactional producer
	Ends       []bool   `json:"ends"` // for each transaction whether it is committed
	Group      string   `json:"group"`
	Sink       string   `json:"sink"`
}

// What is written, or nil where there is nothing.
func bytesOf(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

// What is read, or nil where there is nothing.
func textOf(bytes []byte) *string {
	if bytes == nil {
		return nil
	}
	text := string(bytes)
	return &text
}

func servers(listed string) []string {
	return strings.Split(listed, ",")
}

type topicShape struct {
	Partitions int   `json:"partitions"`
	Replicas   []int `json:"replicas"`
}

type offsets struct {
	Earliest int64 `json:"earliest"`
	Latest   int64 `json:"latest"`
	AtTime   int64 `json:"at_time"`
}

type client interface {
	create(context.Context, order) error
	describe(context.Context, order) (topicShape, error)
	remove(context.Context, order) error
	// The offsets of the first partition.
	offsets(context.Context, order) (offsets, error)
	// The offsets at which the records were written.
	produce(context.Context, order) ([]int64, error)
	// As many records as were ordered, from the beginning of every partition, without a group.
	read(context.Context, order) ([]record, error)
	// Takes part in a group until the context ends, then leaves it.
	join(context.Context, member) error
}

type transactionalClient interface {
	// One transaction after another; each writes its number to every partition.
	transact(context.Context, order) error
	// What a producer is told that commits after another one has taken its id over.
	fence(context.Context, order) error
	// Takes records from a topic to another one and commits their offsets in the same transaction.
	process(context.Context, order) error
}

var clients = map[string]client{
	"franz-go": franzGo{},
	"kafka-go": kafkaGo{},
	"sarama":   saramaClient{},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 2 || clients[arguments[0]] == nil {
		return errors.New("usage: go_clients CLIENT do ORDER | go_clients CLIENT members")
	}
	chosen := clients[arguments[0]]
	if arguments[1] == "members" {
		return hostMembers(chosen)
	}
	var ordered order
	if err := json.Unmarshal([]byte(arguments[2]), &ordered); err != nil {
		return err
	}
	done, err := carryOut(context.Background(), chosen, ordered)
	if err != nil {
		return fmt.Errorf("%s: %w", ordered.Do, err)
	}
	return json.NewEncoder(os.Stdout).Encode(done)
}

func carryOut(ctx context.Context, chosen client, ordered order) (any, error) {
	switch ordered.Do {
	case "create":
		return nil, chosen.create(ctx, ordered)
	case "describe":
		return chosen.describe(ctx, ordered)
	case "delete":
		return nil, chosen.remove(ctx, ordered)
	case "offsets":
		return chosen.offsets(ctx, ordered)
	case "produce":
		return chosen.produce(ctx, ordered)
	case "read":
		return chosen.read(ctx, ordered)
	}
	transactional, ok := chosen.(transactionalClient)
	if !ok {
		return nil, errors.New("this client has no transactions")
	}
	switch ordered.Do {
	case "transact":
		return nil, transactional.transact(ctx, ordered)
	case "fence":
		fenced := transactional.fence(ctx, ordered)
		return fmt.Sprint(fenced), nil
	case "process":
		return nil, transactional.process(ctx, ordered)
	}
	return nil, errors.New("no such order")
}
