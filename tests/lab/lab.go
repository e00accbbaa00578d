package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// ErrNotRoot means that the process may not make network namespaces.
var ErrNotRoot = errors.New("the lab needs root (network namespaces and raw sockets)")

var (
	labs atomic.Uint32
	// open has the labs of this process, for the signal handler of [Main].
	open  sync.Map
	sweep = sync.OnceValue(func() error {
		if os.Geteuid() != 0 {
			return nil // no lab can be made, but [Binary] has its folder
		}
		return errors.Join(shareNames(), removeLeftovers(true), sweepOthers())
	})
)

// Lab is a set of nodes joined by one switch. Its methods may be called from several
// goroutines.
type Lab struct {
	// IPv6Only: nodes that are added have no IPv4 address but that of lo.
	IPv6Only bool
	// UplinkKind is what carries the addresses of nodes that are added: a [VLAN] device on the veth to the switch, a [Bond]
	// of it, or if empty the veth itself.
	UplinkKind string

	prefix string
	// key is for the gossip of the lab's agents; keyFile has it.
	key, keyFile string
	stop         func() bool
	ended        chan struct{}

	mu      sync.Mutex
	hub     *Netns
	nodes   []*Node
	netns   []*Netns
	closers []func() error
	ports   int
	numbers int
	closed  bool

	subscribers []func(Change)

	faultsMu sync.Mutex
	faults   []*Fault
}

// New makes an empty lab. The first call in a process removes what is left of processes that have
// ended. When ctx ends, the lab is closed.
func New(ctx context.Context) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	if err := sweep(); err != nil {
		return nil, fmt.Errorf("remove leftovers: %w", err)
	}
	l := &Lab{prefix: fmt.Sprintf("%s%x-", namePrefix, os.Getpid()), ended: make(chan struct{})}
	if n := labs.Add(1); n > 1 {
		l.prefix = fmt.Sprintf("%s%x.%d-", namePrefix, os.Getpid(), n)
	}
	open.Store(l, nil)
	if err := l.makeKey(); err != nil {
		return nil, errors.Join(fmt.Errorf("make gossip key: %w", err), l.Close())
	}
	hub, err := l.newNetns("switch")
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.hub = hub
	if err := hub.buildSwitch(); err != nil {
		return nil, errors.Join(fmt.Errorf("build switch: %w", err), l.Close())
	}
	l.stop = context.AfterFunc(ctx, l.interrupt)
	return l, nil
}

// Prefix is what the name of every netns of this lab starts with.
func (l *Lab) Prefix() string { return l.prefix }

// OnClose adds a step to Close; the last one added runs first, and all of them before
// any netns is removed. If the lab is closed already, f runs at once.
func (l *Lab) OnClose(f func() error) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.closers = append(l.closers, f)
	}
	l.mu.Unlock()
	if closed {
		_ = f()
	}
}

// Close ends what runs in the lab and removes every netns and device. It may be
// called more than once: the first call does the work and reports errors, the others
// wait until it is done.
func (l *Lab) Close() error { return l.close((*Netns).close) }

// interrupt closes a lab that others may be using.
func (l *Lab) interrupt() { _ = l.close((*Netns).abandon) }

func (l *Lab) close(end func(*Netns) error) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		<-l.ended
		return nil
	}
	l.closed = true
	defer close(l.ended)
	closers, all := l.closers, slices.Clone(l.netns)
	l.mu.Unlock()

	if l.stop != nil {
		l.stop()
	}
	var errs []error
	for _, f := range slices.Backward(closers) {
		errs = append(errs, f())
	}
	// The devices go first: the kernel removes those of a closed netns only later.
	for _, n := range slices.Backward(all) {
		n.removeDevices()
		errs = append(errs, end(n))
	}
	open.Delete(l)
	return errors.Join(errs...)
}

// newNetns makes a netns that Close removes.
func (l *Lab) newNetns(name string) (*Netns, error) {
	n, err := makeNetns(l.prefix + name)
	if err != nil {
		return nil, err
	}
	n.lab = l
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.netns = append(l.netns, n)
	}
	l.mu.Unlock()
	if closed {
		return nil, errors.Join(errors.New("the lab is closed"), n.close())
	}
	return n, nil
}

// forget removes a deleted netns from the list of those that Close removes.
func (l *Lab) forget(n *Netns) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.netns = slices.DeleteFunc(l.netns, func(m *Netns) bool { return m == n })
}

// nextPort numbers the host ends of pods, so that their names differ in a lab.
func (l *Lab) nextPort() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ports++
	return l.ports
}

// short is a netns name without the part that makes it unique on the machine.
func (l *Lab) short(name string) string { return strings.TrimPrefix(name, l.prefix) }
