package books

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

const (
	// askEvery is how often the nodes are asked whose bindings have changed, maxAsking of them at a time, and how long one may take.
	askEvery  = time.Second
	maxAsking = 4
	askTime   = 5 * time.Second
	// askAgain is how long a node that does not answer is left alone.
	askAgain = 5 * time.Second
	// sandboxID is how many characters of the id of a sandbox a binding has.
	sandboxID = 13
)

// held is an address that a pod has on the wire.
type held struct {
	ip            netip.Addr
	node, boot    string
	pod, uid      string // "namespace/name", empty if it is not known
	sandbox       string
	device, netns string
	given         detector.Given
	holder        detector.HolderID
}

// document is the holder as a finding has it.
func (h *held) document() document.Holder {
	doc := document.Holder{Node: h.node, BootID: h.boot, Interface: h.device, Netns: h.netns, Given: h.given}
	if namespace, name, ok := strings.Cut(h.pod, "/"); ok {
		doc.Pod = &document.Pod{Namespace: namespace, Name: name, UID: h.uid}
	}
	return doc
}

// agent is what one node says.
type agent struct {
	name    string
	summary cluster.Summary
	asked   time.Time // not before this again
	has     uint64    // the hash of held
	omitted bool      // held has not all
	held    []held
	at      time.Time // when it answered last; zero for never
}

// complete reports whether the node sees all interfaces of its pods.
func (a *agent) complete() bool {
	for state, n := range a.summary.Interfaces {
		switch state {
		case "attached", "shadowed", "ignored", "uplink":
		default:
			if n > 0 {
				return false
			}
		}
	}
	return true
}

// sees reports whether the agent, if there is one, has said who has which address, and has seen all.
func (a *agent) sees() bool { return a != nil && !a.at.IsZero() && !a.omitted && a.complete() }

// wire is what the agents observe.
type wire struct {
	agents  map[string]*agent // by NodeID: those that have told of themselves and are alive
	changed bool              // since the last comparison
}

func newWire() wire { return wire{agents: make(map[string]*agent)} }

// forget forgets what the agents were asked for.
func (w *wire) forget() {
	for id, a := range w.agents {
		w.agents[id] = &agent{name: a.name, summary: a.summary}
	}
}

// Summary takes what an agent says of its node. node is its NodeID.
func (b *Books) Summary(node string, s cluster.Summary) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.wire.agents[node]
	if a == nil {
		a = &agent{name: cluster.NodeName(node)}
		b.wire.agents[node] = a
	}
	a.summary, b.wire.changed = s, true
}

// Members takes the members of gossip.
func (b *Books) Members(members []cluster.Member) {
	live := make(map[string]bool)
	for _, m := range members {
		if m.Role == cluster.Agent && m.Live() {
			live[m.NodeID()] = true
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.wire.agents {
		if !live[id] {
			delete(b.wire.agents, id)
			b.wire.changed = true
		}
	}
}

// ask asks the agents whose bindings have changed, until ctx ends.
func (b *Books) ask(ctx context.Context) {
	for ticks := time.Tick(askEvery); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		now := time.Now()
		due := make(map[string]uint64)
		b.mu.Lock()
		for id, a := range b.wire.agents {
			if a.summary.Bindings != a.has && now.After(a.asked) {
				due[id] = a.summary.Bindings
			}
		}
		b.mu.Unlock()
		var asking errgroup.Group
		asking.SetLimit(maxAsking)
		for id, hash := range due {
			asking.Go(func() error { b.askOne(ctx, id, hash); return nil })
		}
		_ = asking.Wait() // none returns an error
	}
}

// askOne asks an agent for its bindings, of which it has said the hash.
func (b *Books) askOne(ctx context.Context, id string, hash uint64) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var list []held
	omitted := false
	err := errors.New("no answer")
	_, _ = b.opts.Nodes.Query(ctx, cluster.Query{Kind: cluster.QueryBindings, Node: cluster.NodeName(id)}, func(m cluster.Member, packed []byte) error {
		if m.NodeID() != id {
			return nil // its namesake
		}
		var a document.Answer
		if a, _, err = document.DecodeAnswer(packed, m.Name, m.Boot, time.Now()); err == nil {
			list, omitted = b.holding(a), a.Omitted > 0
		}
		return err
	})
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.wire.agents[id]
	switch {
	case a == nil:
	case err != nil:
		a.asked = now.Add(askAgain)
	default:
		a.held, a.has, a.omitted, a.at, b.wire.changed = list, hash, omitted, now, true
	}
}

// holding returns the addresses that pods of a node have, in networks of the cluster.
func (b *Books) holding(a document.Answer) (list []held) {
	for _, x := range a.Bindings {
		if x.Evidence < detector.Configured || x.Evidence == detector.Host || !b.opts.Rules.ClusterWide(x.Network) || b.opts.Rules.Shared(x.IP) || x.Detector().Key.IsForDrills() {
			continue
		}
		h := held{
			ip: x.IP, node: a.Node, boot: a.BootID, device: x.Interface, netns: x.Netns, given: x.Given, holder: x.ID(),
		}
		if p := x.Pod; p != nil {
			h.pod, h.uid, h.sandbox = p.String(), p.UID, p.Sandbox
		}
		list = append(list, h)
	}
	return list
}
