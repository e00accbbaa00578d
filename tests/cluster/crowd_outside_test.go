package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/tests/lab"
)

// outsider is a member that is not of the crowd, and its name in memberlist.
type outsider struct {
	members.Member
	name string
	at   netip.AddrPort
}

// find has the first agent exchange lists with one outside, and fails unless it knows so many others then. The first time it finds out
// who is outside.
func (w *crowd) find(others int) error {
	list := w.agents[0].list
	if _, err := list.Join([]string{netip.AddrPortFrom(w.Machines["node1"].Uplink(), lab.GossipPort).String()}); err != nil {
		return err
	}
	all := list.Members()
	if len(all)-1 != others {
		return fmt.Errorf("%d members, want %d", len(all)-1, others)
	}
	if w.others() != nil {
		return nil
	}
	var outside []outsider
	for _, n := range all {
		o, err := outsiderOf(n)
		if err != nil {
			return err
		}
		if n.Name != w.agents[0].name {
			outside = append(outside, o)
		}
	}
	w.setOthers(outside)
	return nil
}

// outsiderOf reads what memberlist has of a member.
func outsiderOf(n *memberlist.Node) (o outsider, err error) {
	var m metadata
	if _, err := wire.Unmarshal(n.Meta, &m); err != nil {
		return o, err
	}
	addr, _ := netip.AddrFromSlice(n.Addr)
	o = outsider{name: n.Name, at: netip.AddrPortFrom(addr.Unmap(), n.Port)}
	o.ID, _ = nameID(n.Name)
	o.Member.Member = cluster.Member{Name: m.Name, Boot: m.Boot, Epoch: m.Epoch, Version: m.Version, Role: cluster.Role(m.Role), Address: o.at.String()}
	return o, nil
}

// remind has the agents ping those outside again that the first one does not list: on a busy machine they were taken for dead.
func (w *crowd) remind() {
	listed := make(map[string]bool)
	for _, n := range w.agents[0].list.Members() {
		listed[n.Name] = true
	}
	for _, a := range w.agents {
		for _, o := range w.others() {
			if !listed[a.name] {
				_ = a.ping(o) // may be lost
			}
		}
	}
}

// others are the members outside.
func (w *crowd) others() []outsider {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outside
}

func (w *crowd) setOthers(list []outsider) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outside = list
}

// again waits until a member outside is there again, started anew, and makes all agents know it instead of the earlier one.
func (w *crowd) again(name string) {
	w.Helper()
	list := slices.Clone(w.others())
	i := slices.IndexFunc(list, func(o outsider) bool { return o.Name == name })
	old := list[i]
	w.eventually("its next incarnation", func() error {
		if _, err := w.agents[0].list.Join([]string{netip.AddrPortFrom(w.Machines["node1"].Uplink(), lab.GossipPort).String()}); err != nil {
			return err
		}
		for _, n := range w.agents[0].list.Members() {
			if o, err := outsiderOf(n); err == nil && o.Name == name && o.Epoch > list[i].Epoch {
				list[i] = o
			}
		}
		if list[i].ID == old.ID {
			return errors.New("it is not there")
		}
		return nil
	})
	w.setOthers(list)
	var joining errgroup.Group
	joining.SetLimit(64)
	for _, a := range w.agents {
		joining.Go(func() error {
			a.handler.Left(old.Member, false)
			return a.meet(w.Context(), list[i])
		})
	}
	w.Do(joining.Wait())
}

// join makes the agent and those outside known to each other.
func (a *crowdAgent) join(ctx context.Context) error {
	for _, o := range a.crowd.others() {
		if err := a.meet(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// meet makes the agent and one outside known to each other.
func (a *crowdAgent) meet(ctx context.Context, o outsider) error {
	if err := lab.Poll(ctx, patience, func() error { return a.ping(o) }); err != nil {
		return err
	}
	a.handler.Joined(o.Member)
	return nil
}

// ping sends a ping, and with it what is news.
func (a *crowdAgent) ping(o outsider) error {
	_, err := a.list.Ping(o.name, net.UDPAddrFromAddrPort(o.at))
	return err
}

// keep does to the members outside what thousands of memberlists would: each second one pings each of them.
func (w *crowd) keep(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		outside := w.others()
		for i, o := range outside {
			a := w.agents[rand.N(len(w.agents))]
			go func() { _ = a.ping(o) }() // may be lost
			if n%exchangeEvery == i*exchangeEvery/len(outside) {
				_, _ = w.agents[0].list.Join([]string{o.at.String()})
			}
		}
	}
}
