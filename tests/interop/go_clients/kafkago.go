package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

type kafkaGo struct{}

var kafkaGoCodecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func kafkaGoAdmin(ordered order) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(servers(ordered.Servers)...)}
}

func (kafkaGo) create(ctx context.Context, ordered order) error {
	topic := kafka.TopicConfig{
		Topic: ordered.Topic, NumPartitions: int(ordered.Partitions), ReplicationFactor: int(ordered.Replicas),
	}
	created, err := kafkaGoAdmin(ordered).CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err != nil {
		return err
	}
	return created.Errors[ordered.Topic]
}

func (kafkaGo) describe(ctx context.Context, ordered order) (topicShape, error) {
	metadata, err := kafkaGoAdmin(ordered).Metadata(ctx, &kafka.MetadataRequest{Topics: []string{ordered.Topic}})
	if err != nil {
		return topicShape{}, err
	}
	described := metadata.Topics[0]
	shape := topicShape{Partitions: len(described.Partitions)}
	for _, partition := range described.Partitions {
		shape.Replicas = append(shape.Replicas, len(partition.Replicas))
	}
	return shape, described.Error
}

func (kafkaGo) remove(ctx context.Context, ordered order) error {
	deleted, err := kafkaGoAdmin(ordered).DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{ordered.Topic}})
	if err != nil {
		return err
	}
	return deleted.Errors[ordered.Topic]
}

func (kafkaGo) offsets(ctx context.Context, ordered order) (offsets, error) {
	wanted := []kafka.OffsetRequest{
		kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0), kafka.TimeOffsetOf(0, time.UnixMilli(ordered.TimeMs)),
	}
	request := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{ordered.Topic: wanted}}
	listed, err := kafkaGoAdmin(ordered).ListOffsets(ctx, request)
	if err != nil {
		return offsets{}, err
	}
	partition := listed.Topics[ordered.Topic][0]
	found := offsets{Earliest: partition.FirstOffset, Latest: partition.LastOffset, AtTime: -1}
	for offset := range partition.Offsets {
		found.AtTime = offset
	}
	return found, partition.Error
}

func (kafkaGo) produce(ctx context.Context, ordered order) ([]int64, error) {
	at := make([]int64, len(ordered.Records))
	writer := &kafka.Writer{
		Addr:         kafka.TCP(servers(ordered.Servers)...),
		Topic:        ordered.Topic,
		RequiredAcks: kafka.RequireAll,
		Compression:  kafkaGoCodecs[ordered.Codec],
		BatchTimeout: 10 * time.Millisecond,
		// A message may not name its partition: its number leads to the record that does.
		Balancer: kafka.BalancerFunc(func(message kafka.Message, _ ...int) int {
			return int(ordered.Records[message.WriterData.(int)].Partition)
		}),
		Completion: func(messages []kafka.Message, _ error) {
			for _, message := range messages {
				at[message.WriterData.(int)] = message.Offset
			}
		},
	}
	var messages []kafka.Message
	for n, one := range ordered.Records {
		message := kafka.Message{Key: bytesOf(one.Key), Value: bytesOf(one.Value), WriterData: n}
		for _, header := range one.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header[0], Value: []byte(header[1])})
		}
		messages = append(messages, message)
	}
	if err := writer.WriteMessages(ctx, messages...); err != nil {
		return nil, err
	}
	return at, writer.Close()
}

func kafkaGoReader(listed, topic string, partition int, level kafka.IsolationLevel) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: servers(listed), Topic: topic, Partition: partition,
		MaxWait: 300 * time.Millisecond, IsolationLevel: level,
	})
}

func (kafkaGo) read(ctx context.Context, ordered order) ([]record, error) {
	level := kafka.ReadUncommitted
	if ordered.Committed {
		level = kafka.ReadCommitted
	}
	merged := make(chan record)
	failed := make(chan error)
	for partition := range ordered.Partitions {
		reader := kafkaGoReader(ordered.Servers, ordered.Topic, int(partition), level)
		defer reader.Close()
		go func() {
			for {
				message, err := reader.ReadMessage(ctx)
				if err != nil {
					failed <- fmt.Errorf("partition %d: %w", partition, err)
					return
				}
				merged <- kafkaGoRecord(message)
			}
		}()
	}
	var found []record
	for len(found) < ordered.Count {
		select {
		case one := <-merged:
			found = append(found, one)
		case err := <-failed:
			return nil, err
		}
	}
	return found, nil
}

func kafkaGoRecord(message kafka.Message) record {
	read := record{
		Partition: int32(message.Partition), Offset: message.Offset,
		Key: textOf(message.Key), Value: textOf(message.Value),
	}
	for _, header := range message.Headers {
		read.Headers = append(read.Headers, [2]string{header.Key, string(header.Value)})
	}
	return read
}
