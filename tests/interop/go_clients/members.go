package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"slices"
	"sync"
)

type memberOrder struct {
	Start     string `json:"start"`
	Stop      string `json:"stop"`
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Protocol  string `json:"protocol"`
	Servers   string `json:"servers"`
	SessionMs int    `json:"session_ms"`
}

// A group member: how it takes part, and how it says what happens to it.
type member struct {
	memberOrder
	printed *printer
}

type printer struct {
	mutex   sync.Mutex
	encoder *json.Encoder
}

func (m member) say(event map[string]any) {
	event["member"] = m.Start
	m.printed.mutex.Lock()
	defer m.printed.mutex.Unlock()
	_ = m.printed.encoder.Encode(event)
}

func (m member) owns(what string, partitions []int32) {
	owned := append([]int32{}, partitions...)
	slices.Sort(owned)
	m.say(map[string]any{"what": what, "owned": owned})
}

func (m member) got(partition int32, offset int64) {
	m.say(map[string]any{"got": [][2]int64{{int64(partition), offset}}})
}

func (m member) committed(partition int32, end int64) {
	m.say(map[string]any{"committed": [][2]int64{{int64(partition), end}}})
}

func (m member) note(text string) {
	m.say(map[string]any{"note": text})
}

// Runs each member by itself until stdin ends.
func hostMembers(chosen client) error {
	printed := &printer{encoder: json.NewEncoder(os.Stdout)}
	stop := map[string]context.CancelFunc{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var ordered memberOrder
		if err := json.Unmarshal(lines.Bytes(), &ordered); err != nil {
			return err
		}
		if ordered.Stop != "" {
			stop[ordered.Stop]()
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		stop[ordered.Start] = cancel
		started := member{ordered, printed}
		go func() {
			if err := chosen.join(ctx, started); err != nil {
				started.say(map[string]any{"error": err.Error()})
				return
			}
			started.say(map[string]any{"stopped": true})
		}()
	}
	return lines.Err()
}
