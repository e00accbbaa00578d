package gossip

import (
	"errors"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// parts are what each part of node "a" needs, without a loop and without other agents.
type parts struct {
	t      *testing.T
	roster *roster.Roster
	count  *counters
	peers  *peers
	post   *post
	sent   []wire.Packet
	broken bool // nothing can be sent
}

func newParts(t *testing.T) *parts {
	id := wire.MemberIDOf("a", testBoot, 1)
	p := &parts{t: t, count: newCounters()}
	p.roster = roster.New(id, cluster.Member{Name: "a", Boot: testBoot, Epoch: 1, Address: "a"}, noon)
	p.peers = &peers{p.count, make(chan cluster.Message, maxMessages), make(map[*roster.Node]*peer)}
	p.post = &post{Queue: retry.New(noon), count: p.count, network: wires{parts: p}, open: make(map[*roster.Node]*packet)}
	return p
}

// wires are the Network of parts, which only send.
type wires struct {
	Network
	*parts
}

// Send implements [Network].
func (w wires) Send(_ wire.MemberID, payload []byte) error {
	packet, _, _, err := wire.Decode(payload, w.roster.Self().ID, noon)
	if w.sent = append(w.sent, packet); w.broken {
		return errors.New("the network is down")
	}
	return err
}

// join makes a member known.
func (p *parts) join(name string, epoch int64, role cluster.Role) *roster.Node {
	p.t.Helper()
	m := cluster.Member{Name: name, Boot: testBoot, Epoch: epoch, Address: name, Role: role}
	if _, err := p.roster.Join(wire.MemberIDOf(name, testBoot, epoch), m, noon); err != nil {
		p.t.Fatal(err)
	}
	return p.roster.ByID(m.NodeID())
}

// drops checks how often something was dropped for a reason.
func (p *parts) drops(what, reason string, want uint64) {
	p.t.Helper()
	if dropped, _, _ := p.count.read(); dropped[reason] != want {
		p.t.Errorf("%s: dropped %v, want %d for %q", what, dropped, want, reason)
	}
}

// news returns the next message to the agent, nil if there is none.
func (p *parts) news() cluster.Message {
	select {
	case m := <-p.peers.messages:
		return m
	default:
		return nil
	}
}

// busy gives the agent no room until news.
func (p *parts) busy() {
	p.peers.messages = make(chan cluster.Message, 1)
	p.peers.messages <- cluster.Stopped{}
}

// due returns what is to be sent until a time.
func (p *parts) due(until time.Time) []retry.Due { return p.post.Due(until, 1<<20) }

// pod is a binding of a pod on a node.
func pod(n *roster.Node, netns uint64) cluster.Binding {
	return cluster.Binding{Holder: detector.Holder{ID: detector.HolderID{Node: n.ID, Netns: netns}}, Evidence: detector.Announced, FirstSeen: noon}
}
