package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The partitions of a member of franz-go, which is told only what changes.
type franzShare struct {
	member
	mutex sync.Mutex
	owned []int32
}

func (s *franzShare) assigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.owned = append(s.owned, added[s.Topic]...)
	s.owns("assigned", s.owned)
}

func (s *franzShare) without(what string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.owned = slices.DeleteFunc(s.owned, func(p int32) bool { return slices.Contains(gone[s.Topic], p) })
		s.owns(what, s.owned)
	}
}

func (franzGo) join(ctx context.Context, m member) error {
	share := &franzShare{member: m}
	options := []kgo.Opt{
		kgo.SeedBrokers(servers(m.Servers)...),
		kgo.ClientID(m.Start),
		kgo.ConsumerGroup(m.Group),
		kgo.ConsumeTopics(m.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(300 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(share.assigned),
		kgo.OnPartitionsRevoked(share.without("revoked")),
		kgo.OnPartitionsLost(share.without("lost")),
	}
	if m.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	} else {
		session := time.Duration(m.SessionMs) * time.Millisecond
		options = append(options, kgo.SessionTimeout(session), kgo.HeartbeatInterval(500*time.Millisecond))
	}
	consumer, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer consumer.CloseAllowingRebalance()
	for ctx.Err() == nil {
		fetched := consumer.PollFetches(ctx)
		fetched.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				m.note(err.Error())
			}
		})
		var records []*kgo.Record
		fetched.EachRecord(func(one *kgo.Record) {
			m.got(one.Partition, one.Offset)
			records = append(records, one)
		})
		if err := consumer.CommitRecords(context.Background(), records...); err != nil {
			m.note("commit: " + err.Error())
		} else {
			for _, one := range records {
				m.committed(one.Partition, one.Offset+1)
			}
		}
		consumer.AllowRebalance()
	}
	return nil
}
