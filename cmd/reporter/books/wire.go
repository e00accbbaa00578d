package books

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

const (
	// askEvery is how often the nodes are asked whose bindings have changed, maxAsking of them at a time, which leaves enough of the queries to
	// people. While there are more, the next ones are asked after askMore: 120 nodes a second. askTime is how long one may take.
	askEvery, askMore = time.Second, 25 * time.Millisecond
	maxAsking         = 3
	askTime           = 3 * time.Second
	// askAgain is how long a node that does not answer is left alone; each time twice as long, up to maxAskAgain.
	askAgain, maxAskAgain = 5 * time.Second, time.Minute
	// sandboxID is how many characters of the id of a sandbox a binding has.
	sandboxID = 13
)

// held is an address that a pod has on the wire.
type held struct {
	ip            netip.Addr
	network       string
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
	ranges  []span // those of the summary
	// Of what it was asked: not before next again, after that pause, and whether it is being asked, or has to be although nothing has changed.
	next          time.Time
	pause         time.Duration
	asking, again bool
	// has is the hash of held, omitted: held has not all. unlike are the addresses of networks, or kinds, that are not compared.
	has     uint64
	omitted bool
	held    []held
	unlike  map[netip.Addr]bool
	at      time.Time // when it answered last; zero for never
}

// isCurrent reports whether an agent has answered after a time, and has not said since then that something has changed.
func (a *agent) isCurrent(after time.Time) bool {
	return a.at.After(after) && a.has == a.summary.Bindings
}

// gives reports whether the node's own book gives out an address.
func (a *agent) gives(ip netip.Addr) bool {
	return slices.ContainsFunc(a.ranges, func(s span) bool { return s.first.Compare(ip) <= 0 && ip.Compare(s.last) <= 0 })
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
	live    map[string]bool   // the NodeIDs of all that are alive
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
	b.wire.changed = b.wire.changed || !reflect.DeepEqual(a.summary, s) // it is repeated every two minutes
	a.summary, a.ranges = s, nil
	for _, text := range s.Ranges {
		first, last, _ := strings.Cut(text, "-")
		from, err1 := netip.ParseAddr(first)
		to, err2 := netip.ParseAddr(last)
		if err1 == nil && err2 == nil && from.Compare(to) <= 0 {
			a.ranges = append(a.ranges, span{from, to, text, a.name, true})
		}
	}
	if s.Bindings == 0 { // of a version that does not say when they change
		a.has, a.held, a.at = 0, nil, time.Time{}
	}
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
	b.wire.live = live
	for id := range b.wire.agents {
		if !live[id] {
			delete(b.wire.agents, id)
			b.wire.changed = true
		}
	}
}

// ask asks the agents whose bindings have changed, until ctx ends. One that is silent does not hold up the others.
func (b *Books) ask(ctx context.Context) {
	var asking errgroup.Group
	asking.SetLimit(maxAsking)
	for wait := askEvery; ; {
		select {
		case <-ctx.Done():
			_ = asking.Wait() // none returns an error
			return
		case <-time.After(wait):
		}
		due := b.due(time.Now())
		if wait = askEvery; len(due) == maxAsking {
			wait = askMore
		}
		for id, hash := range due {
			begun := asking.TryGo(func() error { b.askOne(ctx, id, hash); return nil })
			if !begun {
				break
			}
		}
	}
}

// due are maxAsking of the agents to ask, or all if they are fewer, with the hash of their bindings.
func (b *Books) due(now time.Time) map[string]uint64 {
	due := make(map[string]uint64)
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, a := range b.wire.agents {
		if len(due) == maxAsking {
			break
		}
		if hash := a.summary.Bindings; hash != 0 && (hash != a.has || a.again) && !a.asking && now.After(a.next) {
			due[id] = hash
		}
	}
	return due
}

// askOne asks an agent for its bindings, of which it has said the hash.
func (b *Books) askOne(ctx context.Context, id string, hash uint64) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	b.mu.Lock()
	if a := b.wire.agents[id]; a != nil {
		a.asking, a.again = true, false
	}
	b.mu.Unlock()
	var list []held
	var unlike map[netip.Addr]bool
	omitted := false
	err := errors.New("no answer")
	_, _ = b.opts.Nodes.Query(ctx, cluster.Query{Kind: cluster.QueryBindings, Node: cluster.NodeName(id)}, func(m cluster.Member, packed []byte) error {
		if m.NodeID() != id {
			return nil // its namesake
		}
		var a document.Answer
		if a, _, err = document.DecodeAnswer(packed, m.Name, m.Boot, time.Now()); err == nil {
			list, unlike = b.holding(a)
			omitted = a.Omitted > 0
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
		a.pause = min(max(askAgain, 2*a.pause), maxAskAgain)
		a.next, a.asking, a.again = now.Add(a.pause), false, true
	default:
		a.held, a.unlike, a.has, a.omitted, a.at, b.wire.changed = list, unlike, hash, omitted, now, true
		a.pause, a.asking = 0, false
	}
}

// holding returns the addresses that pods of a node have, in networks of the cluster, and all others that it has.
func (b *Books) holding(a document.Answer) (list []held, unlike map[netip.Addr]bool) {
	unlike = make(map[netip.Addr]bool)
	for _, x := range a.Bindings {
		if x.Evidence < detector.Configured || x.Evidence == detector.Host || !b.opts.Rules.ClusterWide(x.Network) || b.opts.Rules.Shared(x.IP) || x.Detector().Key.IsForDrills() {
			unlike[x.IP] = true
			continue
		}
		h := held{
			ip: x.IP, network: x.Network, node: a.Node, boot: a.BootID, device: x.Interface, netns: x.Netns, given: x.Given, holder: x.ID(),
		}
		if p := x.Pod; p != nil {
			h.pod, h.uid, h.sandbox = p.String(), p.UID, p.Sandbox
		}
		list = append(list, h)
	}
	return list, unlike
}
