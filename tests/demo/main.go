// Command demo shows what dupip does, in half a minute and for real: a node and its
// pods are network namespaces of this machine, the duplicates are real, and an agent
// finds them from their packets. It needs root and leaves nothing behind.
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
const patience = 10 * time.Second

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

// run plays the demo and takes its lab down, whatever happens.
func run(ctx context.Context) (err error) {
	l, err := lab.New(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// Closing twice is fine: the context may have done it.
		err = errors.Join(err, l.Close())
	}()
	node, err := l.AddNode("demo")
	if err != nil {
		return err
	}
	s := &show{ctx: ctx, lab: l, node: node}
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

// show is the demo in progress.
type show struct {
	ctx   context.Context
	lab   *lab.Lab
	node  *lab.Node
	agent *lab.Agent
	watch *lab.Watch
	last  *lab.Pod
}

// cast is a pod of the demo.
type cast struct {
	name   string
	style  lab.Style
	addrs  []netip.Addr
	silent bool
}

func (s *show) pods() error {
	b4, b6, r4, r6 := s.node.IPv4, s.node.IPv6, s.node.RoutedIPv4, s.node.RoutedIPv6
	pods := []cast{
		{"web", lab.Bridged, []netip.Addr{b4(11)}, false},
		{"api", lab.Bridged, []netip.Addr{b4(12), b6(0x12)}, false},
		{"cache", lab.Bridged, []netip.Addr{b6(0x13)}, false},
		{"batch", lab.Bridged, []netip.Addr{b4(14)}, true},
		{"shop", lab.Routed, []netip.Addr{r4(21)}, false},
		{"auth", lab.Routed, []netip.Addr{r4(22), r6(0x22)}, false},
		{"mail", lab.Routed, []netip.Addr{r6(0x23)}, false},
		{"queue", lab.Routed, []netip.Addr{r4(24)}, true},
	}
	fmt.Printf("A node with eight pods, each a network namespace of this machine:\n\n")
	fmt.Printf("  %-8s %-13s %s\n", "POD", "NETWORK", "ADDRESSES")
	for _, pod := range pods {
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
		fmt.Printf("  %-8s %-13s %s%s\n", pod.name, style, join(pod.addrs), note)
	}
	return nil
}

func (s *show) add(pod cast) (*lab.Pod, error) {
	return s.node.AddPod(pod.name, lab.PodOptions{Style: pod.style, Addrs: pod.addrs, Silent: pod.silent})
}

func (s *show) observe() error {
	var err error
	if s.agent, err = s.node.StartAgent("--log-level", "info"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := s.agent.WaitReady(ctx); err != nil {
		return err
	}
	if s.watch, err = s.agent.Watch(s.ctx); err != nil {
		return err
	}
	// Ten addresses, the silent ones too: the agent asked, and they answered.
	for _, ip := range []netip.Addr{
		s.node.IPv4(11), s.node.IPv4(12), s.node.IPv6(0x12), s.node.IPv6(0x13), s.node.IPv4(14),
		s.node.RoutedIPv4(21), s.node.RoutedIPv4(22), s.node.RoutedIPv6(0x22), s.node.RoutedIPv6(0x23), s.node.RoutedIPv4(24),
	} {
		if _, err := s.agent.Client.WaitBinding(ctx, ip, func(lab.Binding) bool { return true }); err != nil {
			return fmt.Errorf("the agent did not see %s: %w", ip, err)
		}
	}
	fmt.Printf("\nAn agent observes them and has heard from all ten addresses. So far all is well:\n")
	return s.command("conflicts")
}

func (s *show) duplicates() error {
	fmt.Printf("\nNow three pods start with addresses that others have:\n\n")
	newcomers := []cast{
		{"web-2", lab.Bridged, []netip.Addr{s.node.IPv4(11)}, false},
		{"mail-2", lab.Routed, []netip.Addr{s.node.RoutedIPv6(0x23)}, false},
		{"queue-2", lab.Routed, []netip.Addr{s.node.RoutedIPv4(24)}, true},
	}
	fmt.Printf(" %8s  %-10s %-14s %s\n", "SECONDS", "EVENT", "ADDRESS", "HOLDERS")
	for n, newcomer := range newcomers {
		pod, err := s.add(newcomer)
		if err != nil {
			return err
		}
		s.last = pod
		ip := newcomer.addrs[0]
		fmt.Printf(" %8.3f  %-10s %-14s %s\n", 0.0, "starts", ip, newcomer.name)
		for _, step := range []string{"suspected", "confirmed"} {
			event, err := s.watch.WaitType(step, ip, patience)
			if s.ctx.Err() != nil {
				return s.ctx.Err()
			}
			if err != nil {
				return fmt.Errorf("duplicate %d was not found: %w\n%s", n+1, err, s.agent.Log())
			}
			fmt.Printf(" %8.3f  %-10s %-14s %s\n", event.At.Sub(pod.Started).Seconds(), step, ip, s.holders(event))
		}
	}
	return nil
}

// holders names the pods of an event, without the prefix of this run.
func (s *show) holders(event lab.Event) string {
	var names []string
	for _, holder := range event.Conflict.Holders {
		names = append(names, strings.TrimPrefix(holder.Netns, s.lab.Prefix()))
	}
	return strings.Join(names, " and ")
}

func (s *show) inspect() error {
	fmt.Println("\nWho they are, for whoever is on call:")
	if err := s.command("conflicts"); err != nil {
		return err
	}
	fmt.Println("\nAnd the whole story of the last one, whose two holders never sent a packet:")
	return s.command("explain", s.node.RoutedIPv4(24).String())
}

func (s *show) resolve() error {
	fmt.Printf("\nThe newcomer %s is deleted:\n\n", strings.TrimPrefix(s.last.Name, s.lab.Prefix()))
	began := time.Now()
	if err := s.last.Delete(); err != nil {
		return err
	}
	ip := s.node.RoutedIPv4(24)
	event, err := s.watch.WaitType("resolved", ip, patience)
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("the end of the conflict was not noticed: %w", err)
	}
	fmt.Printf(" %8.3f  %-10s %-14s %s\n", event.At.Sub(began).Seconds(), "resolved", ip,
		strings.ReplaceAll(event.Reason, s.lab.Prefix(), ""))
	return s.command("conflicts")
}

// command runs a command of dupip against the agent and prints both.
func (s *show) command(args ...string) error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	out, err := s.agent.CLI(ctx, args...)
	if err != nil {
		return err
	}
	fmt.Printf("\n $ dupip %s\n", strings.Join(args, " "))
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
