package main

import (
	"context"

	"github.com/IBM/sarama"
)

type saramaClient struct{}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

// By the newest protocol that it knows; what it takes for granted unless told otherwise is Kafka 2.8.
func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	return config
}

func saramaAdmin(ordered order) (sarama.ClusterAdmin, error) {
	return sarama.NewClusterAdmin(servers(ordered.Servers), saramaConfig())
}

func (saramaClient) create(_ context.Context, ordered order) error {
	admin, err := saramaAdmin(ordered)
	if err != nil {
		return err
	}
	defer admin.Close()
	detail := &sarama.TopicDetail{NumPartitions: ordered.Partitions, ReplicationFactor: ordered.Replicas}
	return admin.CreateTopic(ordered.Topic, detail, false)
}

func (saramaClient) describe(_ context.Context, ordered order) (topicShape, error) {
	admin, err := saramaAdmin(ordered)
	if err != nil {
		return topicShape{}, err
	}
	defer admin.Close()
	described, err := admin.DescribeTopics([]string{ordered.Topic})
	if err != nil {
		return topicShape{}, err
	}
	if described[0].Err != sarama.ErrNoError {
		return topicShape{}, described[0].Err
	}
	shape := topicShape{Partitions: len(described[0].Partitions)}
	for _, partition := range described[0].Partitions {
		shape.Replicas = append(shape.Replicas, len(partition.Replicas))
	}
	return shape, nil
}

func (saramaClient) remove(_ context.Context, ordered order) error {
	admin, err := saramaAdmin(ordered)
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.DeleteTopic(ordered.Topic)
}

func (saramaClient) offsets(_ context.Context, ordered order) (found offsets, err error) {
	connected, err := sarama.NewClient(servers(ordered.Servers), saramaConfig())
	if err != nil {
		return found, err
	}
	defer connected.Close()
	for time, into := range map[int64]*int64{
		sarama.OffsetOldest: &found.Earliest, sarama.OffsetNewest: &found.Latest, ordered.TimeMs: &found.AtTime,
	} {
		if *into, err = connected.GetOffset(ordered.Topic, 0, time); err != nil {
			return found, err
		}
	}
	return found, nil
}

func (saramaClient) produce(_ context.Context, ordered order) ([]int64, error) {
	config := saramaConfig()
	config.Producer.Compression = saramaCodecs[ordered.Codec]
	if ordered.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(servers(ordered.Servers), config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, len(ordered.Records))
	for n, written := range ordered.Records {
		messages[n] = saramaMessage(ordered.Topic, written)
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	var at []int64
	for _, message := range messages {
		at = append(at, message.Offset)
	}
	return at, nil
}

func saramaMessage(topic string, written record) *sarama.ProducerMessage {
	message := &sarama.ProducerMessage{Topic: topic, Partition: written.Partition}
	if written.Key != nil {
		message.Key = sarama.StringEncoder(*written.Key)
	}
	if written.Value != nil {
		message.Value = sarama.StringEncoder(*written.Value)
	}
	for _, header := range written.Headers {
		message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header[0]), Value: []byte(header[1])})
	}
	return message
}

func (saramaClient) read(ctx context.Context, ordered order) ([]record, error) {
	config := saramaConfig()
	if ordered.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(servers(ordered.Servers), config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	merged := make(chan record)
	for partition := range ordered.Partitions {
		reading, err := consumer.ConsumePartition(ordered.Topic, partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		defer reading.AsyncClose()
		go func() {
			for message := range reading.Messages() {
				select {
				case merged <- saramaRecord(message):
				case <-ctx.Done():
				}
			}
		}()
	}
	var found []record
	for len(found) < ordered.Count {
		found = append(found, <-merged)
	}
	return found, nil
}

func saramaRecord(message *sarama.ConsumerMessage) record {
	read := record{Partition: message.Partition, Offset: message.Offset, Key: textOf(message.Key), Value: textOf(message.Value)}
	for _, header := range message.Headers {
		read.Headers = append(read.Headers, [2]string{string(header.Key), string(header.Value)})
	}
	return read
}
