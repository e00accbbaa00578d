package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/soak/plan"
)

const (
	// askInterval is how often neighbours ask for what deaf pods have; the judge's limit for these is made for that. If it were a second, an
	// answer would come in each round, and count as one to the agent.
	askInterval = 3 * time.Second
	// guestInterval is how often a guest announces its address: the first time is before the agent has attached.
	guestInterval = 200 * time.Millisecond
)

// lie does to the probes of agents what a step says.
func (s *soak) lie(pod *lab.Pod, step *plan.Step) error {
	switch {
	case step.Kind == plan.Deafen:
		return pod.DropProbes()
	case step.Where == plan.NoARP:
		return pod.NoARP()
	case step.Where == plan.Ignore:
		return pod.Sysctl("ipv4/conf/all/arp_ignore", "8")
	}
	return s.sendBack(pod, step.Pod)
}

func (s *soak) sendBack(pod *lab.Pod, p *plan.Pod) error {
	listener, err := pod.SendBack()
	if err == nil {
		s.runs(p, listener)
	}
	return err
}

// runs notes what runs in a pod until its end.
func (s *soak) runs(p *plan.Pod, c io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside[p.Number] = append(s.inside[p.Number], c)
}

// closer is a function that closes something.
type closer func() error

func (c closer) Close() error { return c() }

func (s *soak) startGuests(pod *lab.Pod, p *plan.Pod) (err error) {
	o := lab.GuestOptions{MAC: p.MAC, Interval: guestInterval}
	switch p.Guest {
	case plan.ReflectsBefore:
		o.Reflects = lab.Before
	case plan.ReflectsAfter:
		o.Reflects = lab.After
	case plan.SendsBack:
		err = s.sendBack(pod, p)
	}
	for _, o.Addr = range p.IPs {
		guest, startErr := pod.StartGuest(o)
		if err = errors.Join(err, startErr); startErr == nil {
			s.runs(p, closer(guest.Stop))
		}
	}
	s.watcher.Guests(pod.Name, p.IPs...)
	return err
}

// askForDeaf has a neighbour on each node ask for the addresses of the deaf pods there, until stop is called. Only so are these found.
func (s *soak) askForDeaf(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	for i, n := range s.nodes {
		o := lab.PodOptions{Addrs: []netip.Addr{s.nodes[0].IPv4(byte(90 + i)), s.nodes[0].IPv6(byte(90 + i))}}
		neighbour, err := n.AddPod(fmt.Sprintf("neighbour.%s", n.ShortName()), o)
		s.Do(err)
		s.mu.Lock()
		s.pods[-1-i] = neighbour
		s.mu.Unlock()
		asking.Go(func() {
			for sleep(ctx, askInterval) {
				for _, ip := range s.deafOn(n) {
					if err := neighbour.Solicit(ip); err != nil {
						s.Errorf("seed %d: %v", s.seed, err)
						return
					}
				}
			}
		})
	}
	return func() { cancel(); asking.Wait() }
}

// deafOn are the addresses that deaf pods of a node have.
func (s *soak) deafOn(n *lab.Node) (ips []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h, has := range s.deaf {
		if h.Node == n.ShortName() {
			ips = append(ips, has...)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips)
}
