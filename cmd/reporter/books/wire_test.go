package books

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// answers are those of agents, by NodeID.
type answers map[string]document.Answer

// Query implements [Options.Nodes].
func (a answers) Query(_ context.Context, q cluster.Query, answer func(cluster.Member, []byte) error) (silent []cluster.Member, err error) {
	for id, doc := range a {
		if cluster.NodeName(id) != q.Node {
			continue
		}
		packed, err := doc.Encode(1 << 20)
		if err == nil {
			err = answer(cluster.Member{Name: cluster.NodeName(id), Boot: cluster.BootID(id)}, packed)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// TestAsk: an agent is asked when the hash of its bindings is another one; what counts is what a pod has in a network of the cluster.
func TestAsk(t *testing.T) {
	w := newWorld(t)
	binding := func(network, ip string, evidence detector.Evidence) document.Binding {
		return document.Binding{
			Network: network, IP: netip.MustParseAddr(ip), Evidence: evidence, FirstSeen: noon,
			Holder: document.Holder{Node: "n1", BootID: "boot", NetnsCookie: 7, Pod: &document.Pod{Namespace: "shop", Name: "a", UID: "u", Sandbox: "s"}, Given: detector.GivenYes},
		}
	}
	told := document.Answer{At: time.Now(), Bindings: []document.Binding{
		binding("default", "10.1.1.1", detector.Announced), binding("default", "10.1.1.2", detector.Data), binding("default", "10.1.1.3", detector.Configured),
		binding("default", "10.1.1.4", detector.Claimed), binding("default", "10.1.1.5", detector.Forwarded), binding("default", "10.1.1.6", detector.Host),
		binding("docker0", "10.1.1.7", detector.Announced), binding("default", "192.0.2.1", detector.Announced),
	}}
	w.opts.Nodes = answers{"n1/boot": told, "n1/another": {At: time.Now()}}
	w.Summary("n1/boot", cluster.Summary{Bindings: 5})
	a := w.agent("n1")
	w.askOne(t.Context(), "n1/boot", 5)
	var got []string
	for _, h := range a.held {
		got = append(got, fmt.Sprintf("%s %s %s", h.ip, h.pod, h.sandbox))
	}
	if fmt.Sprint(got) != "[10.1.1.1 shop/a s 10.1.1.2 shop/a s 10.1.1.3 shop/a s]" || a.has != 5 || a.omitted {
		t.Errorf("%q, %+v", got, a)
	}
	told.Omitted = 1
	w.opts.Nodes = answers{"n1/boot": told}
	if w.askOne(t.Context(), "n1/boot", 6); !a.omitted || a.sees() {
		t.Errorf("of a part: %+v", a)
	}
	// One that does not answer is left alone for a while.
	w.opts.Nodes = answers{}
	if w.askOne(t.Context(), "n1/boot", 7); a.has != 6 || !a.next.After(time.Now()) {
		t.Errorf("%+v", a)
	}
	// One of an older version does not say when something has changed: it is not asked, and not believed.
	w.Summary("n1/boot", cluster.Summary{})
	a.again, a.next = true, time.Time{}
	if len(w.due(time.Now())) > 0 || len(a.held) > 0 || a.sees() {
		t.Errorf("of an older version: %+v", a)
	}
	w.Members([]cluster.Member{{Name: "n2", Boot: "boot", State: cluster.Alive}})
	if len(w.wire.agents) != 1 {
		t.Errorf("%d agents are left", len(w.wire.agents))
	}
}

// TestSilent: audit counts the agents that have not told who has which address, also those of which this replica has not heard at all.
func TestSilent(t *testing.T) {
	w := newWorld(t)
	list := []cluster.Member{{Name: "r", Boot: "boot", State: cluster.Alive, Role: cluster.Reporter}, {Name: "n5", Boot: "boot", State: cluster.Dead}}
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		list = append(list, cluster.Member{Name: name, Boot: "boot", State: cluster.Alive})
	}
	w.Members(list)
	w.wire.agents["n3/boot"].at = time.Time{}
	if got := w.Findings().Unchecked; len(got) != 1 || !strings.Contains(got[0], "of 2 nodes") {
		t.Errorf("%q", got)
	}
	w.Members(list[:4]) // n1 and n2, which have
	if got := w.Findings().Unchecked; len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// TestAskMany: after its start, and after a rollout, a reporter has all agents of the largest cluster to ask. It asks few at a time, and has asked
// all within a minute.
func TestAskMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := &counting{}
		opts := testOptions(nil)
		opts.Nodes = asked
		b := New(opts)
		for n := range manyNodes {
			b.Summary(fmt.Sprintf("n%d/boot", n), cluster.Summary{Bindings: 5})
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.ask(ctx) }()
		time.Sleep(time.Minute)
		cancel()
		<-done
		if left := len(b.due(time.Now())); left > 0 || asked.most > maxAsking {
			t.Errorf("%d agents are not asked, and %d were at the same time", left, asked.most)
		}
	})
}

// counting is agents that answer after 10 ms. It counts how many are asked at the same time.
type counting struct {
	mu        sync.Mutex
	now, most int
}

// Query implements [Options.Nodes].
func (c *counting) Query(_ context.Context, q cluster.Query, answer func(cluster.Member, []byte) error) (silent []cluster.Member, err error) {
	add := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now += n
		c.most = max(c.most, c.now)
	}
	add(1)
	defer add(-1)
	time.Sleep(10 * time.Millisecond)
	packed, err := new(document.Answer{At: time.Now()}).Encode(1 << 20)
	if err != nil {
		return nil, err
	}
	return nil, answer(cluster.Member{Name: q.Node, Boot: "boot"}, packed)
}
