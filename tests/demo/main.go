// Command demo shows what dupip does: three nodes and their pods are network namespaces of this machine,
// the duplicates are real, and the agents find them by their packets. It needs root and leaves nothing
// behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// patience is how long the demo waits for anything; what it shows takes two seconds.
var patience = lab.Patience(30 * time.Second)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	interrupted := ctx.Err() != nil
	stop()
	lab.RemoveTemp()
	switch {
	case interrupted:
		fmt.Println("\nInterrupted; everything is cleaned up.")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run plays the demo and closes its lab.
func run(ctx context.Context) (err error) {
	l, err := lab.New(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// The context may have closed it already.
		err = errors.Join(err, l.Close())
	}()
	s := &demo{ctx: ctx, lab: l}
	for _, name := range []string{"red", "green", "blue"} {
		node, err := l.AddNode(name)
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, node)
	}
	for _, act := range []func() error{s.pods, s.observe, s.duplicates, s.inspect, s.resolve} {
		if err := act(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Println("\nThat was all. Nothing is left on this machine.")
	return nil
}

// demo is the demo in progress. Agents and watches are in the order of the nodes.
type demo struct {
	ctx     context.Context
	lab     *lab.Lab
	nodes   []*lab.Node
	agents  []*lab.Agent
	watches []*lab.Watch
	last    *lab.Pod
}

// The nodes, by their place in the list.
const (
	red = iota
	green
	blue
)

// podSpec is a pod of the demo.
type podSpec struct {
	name   string
	node   int
	style  lab.Style
	addrs  []netip.Addr
	silent bool
}

// firstPods are the pods that start before the agents.
func (s *demo) firstPods() []podSpec {
	r, g, b := s.nodes[red], s.nodes[green], s.nodes[blue]
	return []podSpec{
		{"web", red, lab.Bridged, []netip.Addr{r.IPv4(11)}, false},
		{"api", red, lab.Bridged, []netip.Addr{r.IPv4(12), r.IPv6(0x12)}, false},
		{"queue", red, lab.Routed, []netip.Addr{r.RoutedIPv4(24)}, true},
		{"shop", green, lab.Routed, []netip.Addr{g.RoutedIPv4(21)}, false},
		{"auth", green, lab.Routed, []netip.Addr{g.RoutedIPv4(22), g.RoutedIPv6(0x22)}, false},
		{"mail", green, lab.Routed, []netip.Addr{g.RoutedIPv6(0x23)}, false},
		{"cache", blue, lab.Bridged, []netip.Addr{b.IPv6(0x13)}, false},
		{"batch", blue, lab.Bridged, []netip.Addr{b.IPv4(14)}, true},
	}
}

func (s *demo) pods() error {
	fmt.Printf("Three nodes with eight pods, each a network namespace of this machine:\n\n")
	fmt.Printf("  %-7s %-8s %-11s %s\n", "NODE", "POD", "NETWORK", "ADDRESSES")
	for _, pod := range s.firstPods() {
		if _, err := s.add(pod); err != nil {
			return err
		}
		style, note := "bridge", ""
		if pod.style == lab.Routed {
			style = "routed /32"
		}
		if pod.silent {
			note = "  (never sends a packet)"
		}
		fmt.Printf("  %-7s %-8s %-11s %s%s\n", s.nodes[pod.node].ShortName(), pod.name, style, join(pod.addrs), note)
	}
	return nil
}

func (s *demo) add(pod podSpec) (*lab.Pod, error) {
	return s.nodes[pod.node].AddPod(pod.name, lab.PodOptions{Style: pod.style, Addrs: pod.addrs, Silent: pod.silent})
}

func (s *demo) observe() error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for _, node := range s.nodes {
		a, err := node.StartAgent(append(node.ClusterFlags(), "--log-level", "info", "--cluster", "demo")...)
		if err != nil {
			return err
		}
		s.agents = append(s.agents, a)
	}
	for _, a := range s.agents {
		if err := a.WaitReady(ctx); err != nil {
			return err
		}
		if err := a.WaitMembers(ctx, len(s.nodes)); err != nil {
			return err
		}
		w, err := a.Watch(s.ctx)
		if err != nil {
			return err
		}
		s.watches = append(s.watches, w)
	}
	// Ten addresses, also silent pods': the agents probed them, and they answered.
	for _, pod := range s.firstPods() {
		for _, ip := range pod.addrs {
			if _, err := s.agents[pod.node].Client.WaitBinding(ctx, ip, func(lab.Binding) bool { return true }); err != nil {
				return fmt.Errorf("the agent did not see %s: %w", ip, err)
			}
		}
	}
	fmt.Printf("\nAn agent on each node observes them, and they have found each other:\n")
	if err := s.command(red, "nodes"); err != nil {
		return err
	}
	fmt.Printf("\nThey know all ten addresses. There is no conflict yet:\n")
	return s.command(red, "conflicts", "--cluster")
}

func (s *demo) duplicates() error {
	fmt.Printf("\nNow three pods start with addresses that others have, two of them on other nodes:\n\n")
	newcomers := []podSpec{
		{"web-2", red, lab.Bridged, []netip.Addr{s.nodes[red].IPv4(11)}, false},
		{"mail-2", blue, lab.Routed, []netip.Addr{s.nodes[green].RoutedIPv6(0x23)}, false},
		{"queue-2", green, lab.Routed, []netip.Addr{s.nodes[red].RoutedIPv4(24)}, true},
	}
	fmt.Printf(" %8s  %-10s %-14s %s\n", "SECONDS", "EVENT", "ADDRESS", "HOLDERS")
	for n, newcomer := range newcomers {
		pod, err := s.add(newcomer)
		if err != nil {
			return err
		}
		s.last = pod
		ip := newcomer.addrs[0]
		fmt.Printf(" %8.3f  %-10s %-14s %s\n", 0.0, "starts", ip, newcomer.name+" on "+s.nodes[newcomer.node].ShortName())
		for _, step := range []string{"suspected", "confirmed"} {
			event, err := s.watches[newcomer.node].WaitType(step, ip, patience)
			if s.ctx.Err() != nil {
				return s.ctx.Err()
			}
			if err != nil {
				return fmt.Errorf("duplicate %d was not found: %w\n%s", n+1, err, s.agents[newcomer.node].Log())
			}
			fmt.Printf(" %8.3f  %-10s %-14s %s\n", event.At.Sub(pod.Started).Seconds(), step, ip, s.holders(event))
		}
	}
	return nil
}

// holders names the pods of an event, without the prefix of this run.
func (s *demo) holders(event lab.Event) string {
	var names []string
	for _, holder := range event.Conflict.Holders {
		name := strings.TrimPrefix(holder.Netns, s.lab.Prefix())
		if name == "" {
			name = "a pod of " + holder.Node // its node has not sent the name yet
		}
		names = append(names, name)
	}
	return strings.Join(names, " and ")
}

func (s *demo) inspect() error {
	fmt.Println("\nThe conflicts, for the person on call; any node can list them:")
	if err := s.command(blue, "conflicts", "--cluster"); err != nil {
		return err
	}
	fmt.Println("\nThe history of the last one, whose two holders never sent a packet themselves:")
	return s.command(red, "explain", s.nodes[red].RoutedIPv4(24).String())
}

func (s *demo) resolve() error {
	fmt.Printf("\nThe newcomer %s is deleted on green. On red:\n\n", strings.TrimPrefix(s.last.Name, s.lab.Prefix()))
	began := time.Now()
	if err := s.last.Delete(); err != nil {
		return err
	}
	ip := s.nodes[red].RoutedIPv4(24)
	event, err := s.watches[red].WaitType("resolved", ip, patience)
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("the end of the conflict was not noticed: %w", err)
	}
	fmt.Printf(" %8.3f  %-10s %-14s %s\n", event.At.Sub(began).Seconds(), "resolved", ip,
		strings.ReplaceAll(event.Reason, s.lab.Prefix(), ""))
	return s.command(red, "conflicts")
}

// command runs a command of dupip on a node and prints both.
func (s *demo) command(node int, args ...string) error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	out, err := s.agents[node].CLI(ctx, args...)
	if err != nil {
		return err
	}
	fmt.Printf("\n %s$ dupip %s\n", s.nodes[node].ShortName(), strings.Join(args, " "))
	prefix := s.lab.Prefix()
	// The header of a column of names moves with the names.
	out = strings.ReplaceAll(out, "HOLDER"+strings.Repeat(" ", len(prefix)), "HOLDER")
	for line := range strings.Lines(strings.ReplaceAll(out, prefix, "")) {
		fmt.Println(strings.TrimRight(" "+line, " \n"))
	}
	return nil
}

func join(addrs []netip.Addr) string {
	var texts []string
	for _, addr := range addrs {
		texts = append(texts, addr.String())
	}
	return strings.Join(texts, ", ")
}
