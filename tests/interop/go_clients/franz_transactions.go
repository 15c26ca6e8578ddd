package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// One record with this value for each partition, all of them acknowledged.
func franzSend(ctx context.Context, producer *kgo.Client, ordered order, value string) error {
	var written []*kgo.Record
	for partition := range ordered.Partitions {
		written = append(written, franzWritten(ordered.Topic, record{Partition: partition, Value: &value}))
	}
	return producer.ProduceSync(ctx, written...).FirstErr()
}

func (franzGo) transact(ctx context.Context, ordered order) error {
	producer, err := franzClient(ordered, kgo.TransactionalID(ordered.ID))
	if err != nil {
		return err
	}
	defer producer.Close()
	for number, commits := range ordered.Ends {
		if err := producer.BeginTransaction(); err != nil {
			return err
		}
		if err := franzSend(ctx, producer, ordered, fmt.Sprint(number)); err != nil {
			return err
		}
		if err := producer.EndTransaction(ctx, kgo.TransactionEndTry(commits)); err != nil {
			return err
		}
	}
	return nil
}

func (f franzGo) fence(ctx context.Context, ordered order) error {
	old, err := franzClient(ordered, kgo.TransactionalID(ordered.ID))
	if err != nil {
		return err
	}
	defer old.Close()
	if err := old.BeginTransaction(); err != nil {
		return err
	}
	if err := franzSend(ctx, old, ordered, "old"); err != nil {
		return err
	}
	if err := f.transact(ctx, ordered); err != nil {
		return err
	}
	return old.EndTransaction(ctx, kgo.TryCommit)
}

func (franzGo) process(ctx context.Context, ordered order) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(servers(ordered.Servers)...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionalID(ordered.ID),
		kgo.ConsumerGroup(ordered.Group),
		kgo.ConsumeTopics(ordered.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := session.Begin(); err != nil {
		return err
	}
	for count := 0; count < ordered.Count; {
		fetched := session.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return err
		}
		for _, one := range fetched.Records() {
			count++
			written := franzWritten(ordered.Sink, record{Value: textOf(one.Value)})
			if err := session.ProduceSync(ctx, written).FirstErr(); err != nil {
				return err
			}
		}
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(ordered.Ends[0]))
	if err == nil && committed != ordered.Ends[0] {
		err = errors.New("the session ended otherwise")
	}
	return err
}
