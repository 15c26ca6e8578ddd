package main

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
)

func saramaTransactional(ordered order) (sarama.SyncProducer, error) {
	config := saramaConfig()
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = ordered.ID
	config.Net.MaxOpenRequests = 1
	return sarama.NewSyncProducer(servers(ordered.Servers), config)
}

func end(producer sarama.SyncProducer, commits bool) error {
	if commits {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

// One record with this value for each partition.
func saramaMessages(ordered order, value string) (messages []*sarama.ProducerMessage) {
	for partition := range ordered.Partitions {
		messages = append(messages, saramaMessage(ordered.Topic, record{Partition: partition, Value: &value}))
	}
	return messages
}

func (saramaClient) transact(_ context.Context, ordered order) error {
	producer, err := saramaTransactional(ordered)
	if err != nil {
		return err
	}
	defer producer.Close()
	for number, commits := range ordered.Ends {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if err := producer.SendMessages(saramaMessages(ordered, fmt.Sprint(number))); err != nil {
			return err
		}
		if err := end(producer, commits); err != nil {
			return err
		}
	}
	return nil
}

func (s saramaClient) fence(ctx context.Context, ordered order) error {
	old, err := saramaTransactional(ordered)
	if err != nil {
		return err
	}
	defer old.Close()
	if err := old.BeginTxn(); err != nil {
		return err
	}
	if err := old.SendMessages(saramaMessages(ordered, "old")); err != nil {
		return err
	}
	if err := s.transact(ctx, ordered); err != nil {
		return err
	}
	return old.CommitTxn()
}

func (saramaClient) process(ctx context.Context, ordered order) error {
	producer, err := saramaTransactional(ordered)
	if err != nil {
		return err
	}
	defer producer.Close()
	config := saramaConfig()
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	group, err := sarama.NewConsumerGroup(servers(ordered.Servers), ordered.Group, config)
	if err != nil {
		return err
	}
	defer group.Close()
	return group.Consume(ctx, []string{ordered.Topic}, saramaProcess{ordered, producer})
}

type saramaProcess struct {
	order
	producer sarama.SyncProducer
}

func (saramaProcess) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaProcess) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// The topic has one partition, so that this is called once.
func (p saramaProcess) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	if err := p.producer.BeginTxn(); err != nil {
		return err
	}
	metadata := &sarama.ConsumerGroupMetadata{
		GroupID: p.Group, GenerationID: session.GenerationID(), MemberID: session.MemberID(),
	}
	for range p.Count {
		message := <-claim.Messages()
		written := saramaMessage(p.Sink, record{Value: textOf(message.Value)})
		if _, _, err := p.producer.SendMessage(written); err != nil {
			return err
		}
		if err := p.producer.AddMessageToTxnWithGroupMetadata(message, metadata, nil); err != nil {
			return err
		}
	}
	return end(p.producer, p.Ends[0])
}
