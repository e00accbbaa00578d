package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestComplaints(t *testing.T) {
	var c complaints
	now := time.Now()
	for i, step := range []struct {
		after    time.Duration
		problems []string
		came     []string
		over     bool
	}{
		{lookEvery, []string{"9 leases are late"}, nil, false}, // it may be over at once
		{lookEvery, nil, nil, false},
		{lookEvery, []string{"9 leases are late"}, nil, false},
		{lookEvery, []string{"8 leases are late", "node a is alone"}, []string{"8 leases are late"}, false},
		{lookEvery, []string{"7 leases are late", "node a is alone"}, []string{"node a is alone"}, false},
		{lookEvery, []string{"6 leases are late", "node a is alone"}, nil, false},
		{lookEvery, []string{"node a is alone"}, nil, false},
		{lookEvery, nil, nil, true},
		{lookEvery, nil, nil, false},
		// It comes and goes: once in the log is enough.
		{lookEvery, []string{"5 leases are late"}, nil, false},
		{lookEvery, []string{"5 leases are late"}, nil, false},
		{lookEvery, nil, nil, true},
		{restsFor, nil, nil, false},
		{lookEvery, []string{"1 leases are late"}, nil, false},
		{lookEvery, []string{"1 leases are late"}, []string{"1 leases are late"}, false},
		// Whoever is tried next has another reason.
		{lookEvery, []string{"this node is alone: joining 10.0.0.1:1: it hung up"}, nil, true},
		{lookEvery, []string{"this node is alone: joining 10.0.0.2:1: it has other keys"}, []string{"this node is alone: joining 10.0.0.2:1: it has other keys"}, false},
		{lookEvery, []string{"this node is alone: joining 10.0.0.1:1: it hung up"}, nil, false},
	} {
		now = now.Add(step.after)
		came, over := c.look(step.problems, now)
		if diff := cmp.Diff(step.came, came); diff != "" || over != step.over {
			t.Errorf("step %d: over %t, want %t; logged (-want +got):\n%s", i, over, step.over, diff)
		}
	}
	var many []string
	for i := range 2 * maxComplaints {
		many = append(many, fmt.Sprint("problem of node-", i))
	}
	c.look(many, now.Add(lookEvery))
	if len(c.known) > maxComplaints {
		t.Errorf("it remembers %d problems", len(c.known))
	}
}

// Keepers that do not acknowledge are in the log, once, and so is the end of that.
func TestComplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		var log bytes.Buffer
		f.log = slog.New(slog.NewTextHandler(&log, nil))
		n := f.start("deaf", testBoot, 1)
		f.log = nil
		f.startMany(3)
		f.mu.Lock()
		f.cut = func(from, _ string) bool { return from == "deaf" }
		f.mu.Unlock()
		n.hold(testKey(1), 1)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := strings.Count(log.String(), "not acknowledged"); got != 1 {
			t.Errorf("%d lines, want 1:\n%s", got, log.String())
		}
		f.mu.Lock()
		f.cut = nil
		f.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(log.String(), "are over") {
			t.Errorf("no word of the end:\n%s", log.String())
		}
	})
}
