package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franzGo struct{}

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func franzClient(ordered order, options ...kgo.Opt) (*kgo.Client, error) {
	seeds := kgo.SeedBrokers(servers(ordered.Servers)...)
	return kgo.NewClient(append(options, seeds, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
}

func franzAdmin(ordered order) (*kadm.Client, error) {
	connected, err := franzClient(ordered)
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(connected), nil
}

func (franzGo) create(ctx context.Context, ordered order) error {
	admin, err := franzAdmin(ordered)
	if err != nil {
		return err
	}
	defer admin.Close()
	_, err = admin.CreateTopic(ctx, ordered.Partitions, ordered.Replicas, nil, ordered.Topic)
	return err
}

func (franzGo) describe(ctx context.Context, ordered order) (topicShape, error) {
	admin, err := franzAdmin(ordered)
	if err != nil {
		return topicShape{}, err
	}
	defer admin.Close()
	listed, err := admin.ListTopics(ctx, ordered.Topic)
	if err != nil {
		return topicShape{}, err
	}
	described := listed[ordered.Topic]
	shape := topicShape{Partitions: len(described.Partitions)}
	for _, partition := range described.Partitions {
		shape.Replicas = append(shape.Replicas, len(partition.Replicas))
	}
	return shape, described.Err
}

func (franzGo) remove(ctx context.Context, ordered order) error {
	admin, err := franzAdmin(ordered)
	if err != nil {
		return err
	}
	defer admin.Close()
	_, err = admin.DeleteTopic(ctx, ordered.Topic)
	return err
}

func (franzGo) offsets(ctx context.Context, ordered order) (found offsets, err error) {
	admin, err := franzAdmin(ordered)
	if err != nil {
		return found, err
	}
	defer admin.Close()
	first := func(listed kadm.ListedOffsets, failed error) int64 {
		offset, _ := listed.Lookup(ordered.Topic, 0)
		for _, problem := range []error{failed, offset.Err} {
			if problem != nil {
				err = problem
			}
		}
		return offset.Offset
	}
	found.Earliest = first(admin.ListStartOffsets(ctx, ordered.Topic))
	found.Latest = first(admin.ListEndOffsets(ctx, ordered.Topic))
	found.AtTime = first(admin.ListOffsetsAfterMilli(ctx, ordered.TimeMs, ordered.Topic))
	return found, err
}

func (franzGo) produce(ctx context.Context, ordered order) ([]int64, error) {
	options := []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(franzCodecs[ordered.Codec]),
	}
	if !ordered.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	producer, err := franzClient(ordered, options...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	var written []*kgo.Record
	for _, one := range ordered.Records {
		written = append(written, franzWritten(ordered.Topic, one))
	}
	if err := producer.ProduceSync(ctx, written...).FirstErr(); err != nil {
		return nil, err
	}
	var at []int64
	for _, one := range written {
		at = append(at, one.Offset)
	}
	return at, nil
}

func franzWritten(topic string, one record) *kgo.Record {
	written := &kgo.Record{
		Topic: topic, Partition: one.Partition, Key: bytesOf(one.Key), Value: bytesOf(one.Value),
	}
	for _, header := range one.Headers {
		written.Headers = append(written.Headers, kgo.RecordHeader{Key: header[0], Value: []byte(header[1])})
	}
	return written
}

func (franzGo) read(ctx context.Context, ordered order) ([]record, error) {
	start := map[int32]kgo.Offset{}
	for partition := range ordered.Partitions {
		start[partition] = kgo.NewOffset().AtStart()
	}
	options := []kgo.Opt{kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{ordered.Topic: start})}
	if ordered.Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	consumer, err := franzClient(ordered, options...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	var found []record
	for len(found) < ordered.Count {
		fetched := consumer.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return nil, err
		}
		fetched.EachRecord(func(one *kgo.Record) { found = append(found, franzRead(one)) })
	}
	return found, nil
}

func franzRead(one *kgo.Record) record {
	read := record{Partition: one.Partition, Offset: one.Offset, Key: textOf(one.Key), Value: textOf(one.Value)}
	for _, header := range one.Headers {
		read.Headers = append(read.Headers, [2]string{header.Key, string(header.Value)})
	}
	return read
}
