package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

const (
	drillPoll = 200 * time.Millisecond
	// drillLeft is how long after its timeout the kernel removes the address of a drill that was killed.
	drillLeft = 10 * time.Second
)

// final is the error of a step that waiting does not change.
type final struct{ error }

// drill takes an address that another pod takes, too, and watches how the agent of its node finds the conflict.
type drill struct {
	ip            netip.Addr
	device        string
	timeout, hold time.Duration
	client        *api.Client
	out           io.Writer

	began  time.Time
	link   netlink.Link
	taken  *netlink.Addr // nil while the pod does not have the address
	start  time.Time     // of the pod's having the address
	cookie uint64        // of the pod's netns
	node   string        // the agent's
	found  document.Conflict
	end    time.Time // of the pod's having the address
}

func newDrill(p *program) *cobra.Command {
	var d drill
	var ip string
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Make a duplicate on purpose, and see that it is found",
		Long: `Make a duplicate on purpose, and see that it is found. Run it at the same time in two pods, with one address of 192.0.2.0/24 ` +
			`(RFC 5737), which no network uses. Each takes the address until the agents of both nodes have confirmed the conflict, and ` +
			`removes it; if it is killed, the kernel does. Other pods' traffic is not touched, and no alert fires: a conflict of ` +
			`such an address in network default is a drill.

It needs NET_ADMIN in the pod, and the folder with the agent's socket as a volume. "helm test" runs it in two pods.`,
		Example: `  dupip drill --ip 192.0.2.7
  dupip drill --ip 192.0.2.7 --interface net0 --timeout 3m`,
		Args: query.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if d.ip, err = netip.ParseAddr(ip); err != nil || !(detector.Key{Network: config.DefaultNetwork, IP: d.ip}).IsForDrills() {
				return fmt.Errorf("--ip %q: must be an address of 192.0.2.0/24, such as 192.0.2.7", ip)
			}
			if d.client, err = p.Client(cmd); err != nil {
				return err
			}
			d.out = cmd.OutOrStdout()
			return d.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&ip, "ip", "", "the address to take, the same in both pods: one of 192.0.2.0/24")
	flags.StringVar(&d.device, "interface", "eth0", "interface of this pod that takes it")
	flags.DurationVar(&d.timeout, "timeout", time.Minute, "how long it may take until all have confirmed the conflict, and again until it is over")
	flags.DurationVar(&d.hold, "hold", 2*time.Second, "how long to keep the address once all have confirmed the conflict")
	p.addSocket(cmd)
	return cmd
}

func (d *drill) run(ctx context.Context) (err error) {
	d.began = time.Now()
	if d.cookie, err = netns.Cookie(); err != nil {
		if d.cookie, err = netns.ContainerCookie(); err != nil {
			return err
		}
	}
	if d.link, err = netlink.LinkByName(d.device); err != nil {
		return fmt.Errorf("--interface %s: %w; \"ip link\" lists the interfaces of this pod", d.device, err)
	}
	defer func() { err = errors.Join(err, d.remove(ctx)) }()
	if err := d.within(ctx, d.timeout, d.seen, d.take, d.confirmed, d.confirmedByAll); err != nil {
		return err
	}
	return d.within(ctx, d.hold+d.timeout, d.keep, d.remove, d.over)
}

// within takes some steps, which have some time together. It calls each until it is done, its error is final, or the time is over.
// Other errors of a step say what it waits for.
func (d *drill) within(ctx context.Context, limit time.Duration, steps ...func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("after %s", limit))
	defer cancel()
	var why error
	for len(steps) > 0 {
		err := steps[0](ctx)
		if err == nil {
			steps, why = steps[1:], nil
			continue
		}
		if _, ok := errors.AsType[final](err); ok {
			return err
		}
		if why == nil || ctx.Err() == nil { // a request that was cut off says nothing
			why = err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return errors.New("the drill was interrupted")
			}
			return fmt.Errorf("%w: %w", context.Cause(ctx), why)
		case <-time.After(drillPoll):
		}
	}
	return nil
}

// print prints a step and when it was done. Names of other nodes may have any characters.
func (d *drill) print(format string, args ...any) {
	fmt.Fprintf(d.out, "%5.1fs  %s\n", time.Since(d.began).Seconds(), detector.Printable(fmt.Sprintf(format, args...)))
}

// seen waits until the agent has seen an address of this pod. A node has its addresses as their host: it must not take one.
func (d *drill) seen(ctx context.Context) error {
	doc, err := d.client.Bindings(ctx, document.Query{})
	if err != nil {
		return err
	}
	d.node = doc.Node
	n := slices.IndexFunc(doc.Bindings, d.isOwn)
	switch {
	case n < 0:
		return fmt.Errorf("the agent of %s has not seen this pod: has the pod no address, or is it another node's agent? Run \"dupip doctor\" beside it", d.node)
	case doc.Bindings[n].Evidence == detector.Host:
		return final{errors.New("this is the network namespace of the node itself: run the drill in a pod without hostNetwork")}
	}
	d.print("the agent of %s sees this pod, %s", d.node, doc.Bindings[n].IP)
	return nil
}

// isOwn reports whether this pod is the holder.
func (d *drill) isOwn(b document.Binding) bool { return b.Node == d.node && b.NetnsCookie == d.cookie }

// take adds the address, once an earlier drill's conflict is over. The kernel removes it some time after the timeout, should nobody
// else.
func (d *drill) take(ctx context.Context) error {
	if err := d.isOver(ctx); err != nil {
		return err
	}
	lifetime := int((d.timeout + d.hold + drillLeft).Seconds())
	address := &netlink.Addr{IPNet: &net.IPNet{IP: d.ip.AsSlice(), Mask: net.CIDRMask(32, 32)}, ValidLft: lifetime, PreferedLft: lifetime}
	d.start = time.Now()
	switch err := netlink.AddrAdd(d.link, address); {
	case errors.Is(err, unix.EEXIST):
		return final{fmt.Errorf("%s is here already: another drill runs in this pod, or was killed and its address expires soon; choose another --ip", d.ip)}
	case err != nil:
		return final{fmt.Errorf("adding %s to %s (needs NET_ADMIN): %w", d.ip, d.device, err)}
	}
	d.taken = address
	d.print("%s added to %s", d.ip, d.device)
	return nil
}

// remove removes the address, if the pod has it.
func (d *drill) remove(context.Context) error {
	address := d.taken
	if d.taken = nil; address == nil {
		return nil
	}
	if err := netlink.AddrDel(d.link, address); err != nil {
		return final{fmt.Errorf("removing %s from %s; the kernel does it within %ds: %w", d.ip, d.device, address.ValidLft, err)}
	}
	d.end = time.Now()
	d.print("%s removed from %s", d.ip, d.device)
	return nil
}

// conflicts returns the conflicts that a node has about this pod and the address, open ones first: there may be others of the
// address, or of an earlier drill.
func (d *drill) conflicts(ctx context.Context, node string) ([]document.Conflict, error) {
	doc, err := d.client.Conflicts(ctx, document.Query{IP: d.ip, Network: config.DefaultNetwork, Node: node, All: true})
	if err == nil {
		err = query.Unanswered(node, doc.Coverage)
	}
	return slices.DeleteFunc(doc.Conflicts, func(c document.Conflict) bool {
		return c.State == detector.Resolved && c.ConfirmedAt.Before(d.start) || !slices.ContainsFunc(c.Holders, d.isOwn)
	}), err
}

// confirmed waits until the agent has confirmed a conflict of this pod. One that the other pod has ended meanwhile counts.
func (d *drill) confirmed(ctx context.Context) error {
	all, err := d.conflicts(ctx, "")
	if err != nil {
		return err
	}
	n := slices.IndexFunc(all, func(c document.Conflict) bool { return c.State != detector.Suspected })
	if n < 0 {
		return d.notConfirmed(ctx)
	}
	d.found = all[n]
	d.print("confirmed %s after the second holder was seen: %s",
		say.Span(d.found.ConfirmedAt.Sub(d.found.SecondSeen)), say.Conjoin(say.Labels(d.found)))
	return nil
}

// notConfirmed returns what the agent has seen instead, and what to do.
func (d *drill) notConfirmed(ctx context.Context) error {
	doc, err := d.client.Explain(ctx, document.Query{IP: d.ip})
	if err != nil {
		return err
	}
	n := slices.IndexFunc(doc.Stories, func(s document.Story) bool { return s.Network == config.DefaultNetwork })
	switch {
	case n < 0:
		return fmt.Errorf("not confirmed: the agent has not seen %s here: is %s the interface in network default?", d.ip, d.device)
	case len(doc.Stories[n].Bindings) == 1:
		return fmt.Errorf("not confirmed: no second holder of %s was seen: does the other pod run at the same time with the same --ip, "+
			"and does its node's agent reach this one (\"dupip nodes\")?", d.ip)
	}
	return errors.New("not confirmed: the agent says: " + doc.Stories[n].Verdict)
}

// confirmedByAll waits until the agents of the other holders' nodes have confirmed the conflict, too: while they have not, this
// pod must keep the address. If the conflict is over here, the other pod has removed it.
func (d *drill) confirmedByAll(ctx context.Context) error {
	if d.isOver(ctx) != nil {
		for _, b := range d.found.Holders {
			all, err := d.conflicts(ctx, b.Node)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(all, func(c document.Conflict) bool { return c.State == detector.Confirmed }) {
				return errors.New("the agent of " + b.Node + " has not confirmed the conflict")
			}
		}
	}
	d.print("confirmed by the agents of all holders")
	return nil
}

// keep lets the pod have the address for some time more.
func (d *drill) keep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d.hold):
		return nil
	}
}

// over waits until the agent has no conflict of this pod and the address any more.
func (d *drill) over(ctx context.Context) error {
	err := d.isOver(ctx)
	if err == nil {
		what := ""
		if d.found.Scope == detector.SameNode {
			what = ", on one node only: what nodes tell each other was not tested"
		}
		d.print("the conflict ended %s after that: the drill has succeeded%s", say.Span(time.Since(d.end)), what)
	}
	return err
}

func (d *drill) isOver(ctx context.Context) error {
	all, err := d.conflicts(ctx, "")
	if err == nil && slices.ContainsFunc(all, func(c document.Conflict) bool { return c.State != detector.Resolved }) {
		err = fmt.Errorf("the conflict is not over: \"dupip explain %s\" beside the agent shows why", d.ip)
	}
	return err
}
