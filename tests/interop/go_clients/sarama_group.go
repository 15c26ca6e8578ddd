package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
)

func (saramaClient) join(ctx context.Context, m member) error {
	config := saramaConfig()
	config.ClientID = m.Start
	config.Consumer.Group.Session.Timeout = time.Duration(m.SessionMs) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.MaxWaitTime = 300 * time.Millisecond
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = true
	group, err := sarama.NewConsumerGroup(servers(m.Servers), m.Group, config)
	if err != nil {
		return err
	}
	go func() {
		for problem := range group.Errors() {
			m.note(problem.Error())
		}
	}()
	// It returns whenever the group rebalances.
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{m.Topic}, saramaMember{m}); err != nil {
			return errors.Join(err, group.Close())
		}
	}
	return group.Close()
}

type saramaMember struct{ member }

func (m saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.owns("assigned", session.Claims()[m.Topic])
	return nil
}

func (m saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	m.owns("revoked", nil)
	return nil
}

func (m saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			m.got(message.Partition, message.Offset)
			session.MarkMessage(message, "")
			if len(claim.Messages()) > 0 {
				continue
			}
			session.Commit() // it waits for the answer; an error is among those of the group
			m.committed(message.Partition, message.Offset+1)
		case <-session.Context().Done():
			return nil
		}
	}
}
