package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

func (kafkaGo) join(ctx context.Context, m member) error {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                m.Group,
		Brokers:           servers(m.Servers),
		Dialer:            &kafka.Dialer{ClientID: m.Start},
		Topics:            []string{m.Topic},
		HeartbeatInterval: 500 * time.Millisecond,
		SessionTimeout:    time.Duration(m.SessionMs) * time.Millisecond,
		JoinGroupBackoff:  time.Second,
		StartOffset:       kafka.FirstOffset,
	})
	if err != nil {
		return err
	}
	for {
		generation, err := group.Next(ctx)
		if ctx.Err() != nil {
			return group.Close()
		}
		if err != nil {
			m.note(err.Error())
			continue
		}
		var owned []int32
		for _, assigned := range generation.Assignments[m.Topic] {
			owned = append(owned, int32(assigned.ID))
			generation.Start(func(ctx context.Context) { kafkaGoConsume(ctx, m, generation, assigned) })
		}
		m.owns("assigned", owned)
	}
}

// Reads one partition until the generation ends.
func kafkaGoConsume(ctx context.Context, m member, generation *kafka.Generation, assigned kafka.PartitionAssignment) {
	reader := kafkaGoReader(m.Servers, m.Topic, assigned.ID, kafka.ReadUncommitted)
	defer reader.Close()
	if err := reader.SetOffset(assigned.Offset); err != nil {
		m.note(err.Error())
		return
	}
	for {
		message, err := reader.ReadMessage(ctx)
		if errors.Is(err, kafka.ErrGenerationEnded) {
			return
		}
		if err != nil {
			m.note(err.Error())
			return
		}
		m.got(int32(assigned.ID), message.Offset)
		end := map[string]map[int]int64{m.Topic: {assigned.ID: message.Offset + 1}}
		if err := generation.CommitOffsets(end); err != nil {
			m.note("commit: " + err.Error())
			continue
		}
		m.committed(int32(assigned.ID), message.Offset+1)
	}
}
