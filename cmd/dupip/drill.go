package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
)

const (
	drillPoll = 200 * time.Millisecond
	// drillLeft is how long after its timeout the kernel removes the address of a drill that was killed.
	drillLeft = 10 * time.Second
)

var (
	errInterrupted = errors.New("the drill was interrupted")
	errOnNode      = errors.New("this is the network namespace of the node itself: run the drill in a pod without hostNetwork")
)

// drill takes an address that another pod takes, too, and watches how the agent of its node finds the conflict.
type drill struct {
	ip            netip.Addr
	device        string
	timeout, hold time.Duration
	client        *api.Client
	out           io.Writer

	began  time.Time
	link   netlink.Link
	own    netip.Addr // the pod's address
	cookie uint64     // of the pod's netns
	node   string     // the agent's
	found  api.Conflict
}

func newDrill(g *globals) *cobra.Command {
	var d drill
	var ip string
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Make a duplicate on purpose, and see that it is found",
		Long: `Make a duplicate on purpose, and see that it is found. Run it at the same time in two pods, with one address of 192.0.2.0/24 ` +
			`(RFC 5737), which no network uses. Each takes the address until the agents of both nodes have confirmed the conflict, and ` +
			`removes it; if it is killed, the kernel does. Other pods' traffic is not touched, and no alert fires: a conflict of ` +
			`such an address in network default is a drill.

It needs NET_ADMIN in the pod, and the folder of the agent's socket. "helm test" runs it in two pods of the chart's.`,
		Example: `  dupip drill --ip 192.0.2.7
  dupip drill --ip 192.0.2.7 --interface net0 --timeout 3m`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if d.ip, err = netip.ParseAddr(ip); err != nil || !(detector.Key{Network: config.DefaultNetwork, IP: d.ip}).IsDrill() {
				return fmt.Errorf("--ip %q: must be an address of 192.0.2.0/24, such as 192.0.2.7", ip)
			}
			d.client, d.out = g.client(), cmd.OutOrStdout()
			return d.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&ip, "ip", "", "the address to take, the same in both pods: one of 192.0.2.0/24")
	flags.StringVar(&d.device, "interface", "eth0", "interface of this pod that takes it")
	flags.DurationVar(&d.timeout, "timeout", time.Minute, "how long the drill may take, without --hold")
	flags.DurationVar(&d.hold, "hold", 2*time.Second, "how long to keep the address once all have confirmed the conflict")
	flags.StringVar(&g.socket, "api-socket", api.DefaultSocket, "Unix socket of the agent to ask")
	return cmd
}

func (d *drill) run(ctx context.Context) (err error) {
	d.began = time.Now()
	if err := d.prepare(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout+d.hold)
	defer cancel()
	if err := d.poll(ctx, d.seen); err != nil {
		return err
	}
	d.print("the agent of %s sees this pod, %s", d.node, d.own)
	remove, err := d.take()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := d.poll(ctx, d.confirmed); err != nil {
		return d.explain(err)
	}
	d.print("confirmed %s after the second holder was seen: %s",
		cli.Span(d.found.ConfirmedAt.Sub(d.found.SecondSeen)), cli.Conjoin(cli.Labels(d.found)))
	if err := d.poll(ctx, d.confirmedByAll); err != nil {
		return err
	}
	d.print("confirmed by the agents of all holders")
	select {
	case <-ctx.Done():
		return errInterrupted
	case <-time.After(d.hold):
	}
	if remove() != nil {
		return nil // the deferred call returns it
	}
	removed := time.Now()
	if err := d.poll(ctx, d.over); err != nil {
		return err
	}
	d.print("the conflict ended %s after that: the drill has succeeded", cli.Span(time.Since(removed)))
	return nil
}

// print prints a step and when it was done. Names of other nodes may have any characters.
func (d *drill) print(format string, args ...any) {
	fmt.Fprintf(d.out, "%5.1fs  %s\n", time.Since(d.began).Seconds(), cli.Printable(fmt.Sprintf(format, args...)))
}

// poll calls a step until it is done, or ctx ends. The errors of the step say what it waits for.
func (d *drill) poll(ctx context.Context, step func(context.Context) error) error {
	var why error
	for {
		err := step(ctx)
		if err == nil || errors.Is(err, errOnNode) {
			return err
		}
		if why == nil || ctx.Err() == nil { // a request that was cut off says nothing
			why = err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return errInterrupted
			}
			return fmt.Errorf("after %s: %w", d.timeout, why)
		case <-time.After(drillPoll):
		}
	}
}

// prepare finds the interface, which must not have the address, and the pod's identity.
func (d *drill) prepare() (err error) {
	if d.cookie, err = netns.Cookie(); err != nil {
		return err
	}
	if d.link, err = netlink.LinkByName(d.device); err != nil {
		return fmt.Errorf("--interface %s: %w", d.device, err)
	}
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing addresses: %w", err)
	}
	for _, a := range all {
		ip, _ := netip.AddrFromSlice(a.IP)
		if ip = ip.Unmap(); ip == d.ip {
			return fmt.Errorf("%s is here already: another drill runs in this pod, or was killed and its address expires soon; choose another --ip", d.ip)
		}
		if a.LinkIndex == d.link.Attrs().Index && !d.own.IsValid() && ip.IsGlobalUnicast() {
			d.own = ip
		}
	}
	if !d.own.IsValid() {
		return fmt.Errorf("%s has no address, so the agent cannot know this pod; choose another --interface", d.device)
	}
	return nil
}

// seen waits until the agent has seen this pod's own address. A node has its addresses as their host: it must not take one.
func (d *drill) seen(ctx context.Context) error {
	document, err := d.client.Bindings(ctx, api.Query{IP: d.own})
	if err != nil {
		return err
	}
	d.node = document.Node
	switch n := slices.IndexFunc(document.Bindings, d.isOwn); {
	case n < 0:
		return fmt.Errorf("the agent of %s has not seen %s of this pod: is it another node's agent? Run \"dupip doctor\" beside it", d.node, d.own)
	case document.Bindings[n].Evidence == "host":
		return errOnNode
	}
	return nil
}

// isOwn reports whether this pod is the holder.
func (d *drill) isOwn(b api.Binding) bool { return b.Node == d.node && b.NetnsCookie == d.cookie }

// take adds the address. The kernel removes it some time after the timeout, should nobody else.
func (d *drill) take() (remove func() error, err error) {
	lifetime := int((d.timeout + d.hold + drillLeft).Seconds())
	address := &netlink.Addr{
		IPNet: &net.IPNet{IP: d.ip.AsSlice(), Mask: net.CIDRMask(32, 32)}, ValidLft: lifetime, PreferedLft: lifetime,
	}
	if err := netlink.AddrAdd(d.link, address); err != nil {
		return nil, fmt.Errorf("adding %s to %s (needs NET_ADMIN): %w", d.ip, d.device, err)
	}
	d.print("%s added to %s", d.ip, d.device)
	return sync.OnceValue(func() error {
		if err := netlink.AddrDel(d.link, address); err != nil {
			return fmt.Errorf("removing %s from %s; the kernel does it within %ds: %w", d.ip, d.device, lifetime, err)
		}
		d.print("%s removed from %s", d.ip, d.device)
		return nil
	}), nil
}

// conflicts returns the conflicts of the address that a node has, open ones first.
func (d *drill) conflicts(ctx context.Context, node string) ([]api.Conflict, error) {
	document, err := d.client.Conflicts(ctx, api.Query{IP: d.ip, Network: config.DefaultNetwork, Node: node, All: true})
	if err == nil {
		err = unanswered(node, document.Coverage)
	}
	return document.Conflicts, err
}

// confirmed waits until the agent has confirmed a conflict of this pod. One that the other pod has ended meanwhile counts.
func (d *drill) confirmed(ctx context.Context) error {
	all, err := d.conflicts(ctx, "")
	n := slices.IndexFunc(all, func(c api.Conflict) bool {
		return c.State == "confirmed" && slices.ContainsFunc(c.Holders, d.isOwn) || c.State == "resolved" && c.ConfirmedAt.After(d.began)
	})
	if err == nil && n < 0 {
		err = errors.New("not confirmed")
	}
	if err == nil {
		d.found = all[n]
	}
	return err
}

// confirmedByAll waits until the agents of the other holders' nodes have confirmed the conflict, too: while they have not, this
// pod must keep the address. If the conflict is over here, the other pod has removed it.
func (d *drill) confirmedByAll(ctx context.Context) error {
	if d.over(ctx) == nil {
		return nil
	}
	for _, b := range d.found.Holders {
		all, err := d.conflicts(ctx, b.Node)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(c api.Conflict) bool { return c.State == "confirmed" }) {
			return errors.New("the agent of " + b.Node + " has not confirmed the conflict")
		}
	}
	return nil
}

// over waits until the agent has no conflict of the address any more.
func (d *drill) over(ctx context.Context) error {
	all, err := d.conflicts(ctx, "")
	if err == nil && slices.ContainsFunc(all, func(c api.Conflict) bool { return c.State != "resolved" }) {
		err = fmt.Errorf("the conflict is not over: \"dupip explain %s\" beside the agent shows why", d.ip)
	}
	return err
}

// explain adds to the error of a drill that was not confirmed what the agent has seen, and what to do.
func (d *drill) explain(err error) error {
	document, failed := d.client.Explain(context.Background(), api.Query{IP: d.ip})
	if failed != nil || errors.Is(err, errInterrupted) {
		return err
	}
	seen := fmt.Sprintf("the agent has not seen %s here: is %s the interface in network default?", d.ip, d.device)
	for _, s := range document.Stories {
		if s.Network != config.DefaultNetwork {
			continue
		}
		seen = "the agent says: " + s.Verdict
		if len(s.Bindings) == 1 {
			seen = fmt.Sprintf("no second holder of %s was seen: does the other pod run at the same time with the same --ip, "+
				"and does its node's agent reach this one (\"dupip nodes\")?", d.ip)
		}
	}
	return fmt.Errorf("%w: %s", err, seen)
}
