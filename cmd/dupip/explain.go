package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/internal/cli"
)

func newExplain(g *globals) *cobra.Command {
	var local bool
	cmd := &cobra.Command{
		Use:   "explain IP",
		Short: "Show the history of one address, and why it is a conflict or not",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("explain needs one IP address: dupip explain 10.0.0.1")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ip, err := netip.ParseAddr(args[0])
			if err != nil {
				return fmt.Errorf("%q: not an IP address", args[0])
			}
			document, err := g.client().Explain(cmd.Context(), api.Query{IP: ip, Cluster: !local})
			if err != nil {
				return err
			}
			return show(cmd, g, document, printExplanation)
		},
	}
	cmd.Flags().BoolVar(&local, "local", false, "ask this agent only, not those of all nodes")
	g.addTo(cmd)
	return cmd
}

func printExplanation(out io.Writer, e api.Explanation, _ bool) {
	if len(e.Stories) == 0 {
		where := "on node " + e.Node
		if n := e.Asked - len(e.Missing); n > 1 {
			where = fmt.Sprintf("on %d nodes", n)
		}
		fmt.Fprintf(out, "%s was not seen %s.\n", e.IP, where)
	}
	for n, story := range e.Stories {
		if n > 0 {
			fmt.Fprintln(out)
		}
		printStory(out, story)
	}
	printConfigured(out, e)
	printBooks(out, e)
	for _, story := range e.Stories {
		printStoryAdvice(out, story.Conflict)
	}
	if len(e.Missing) > 0 {
		fmt.Fprintln(out)
	}
	printCoverage(out, e.Coverage, "stories")
}

func printConfigured(out io.Writer, e api.Explanation) {
	if len(e.Configured) == 0 {
		return
	}
	on := ""
	if e.Asked > 1 {
		on = " on node " + e.Node
	}
	fmt.Fprintf(out, "\nConfigured%s, as the kernel lists it:\n", on)
	for _, c := range e.Configured {
		text := map[string]string{
			"peer":      "on the pod's end of " + c.Interface,
			"loopback":  "on a loopback device behind " + c.Interface,
			"elsewhere": "on another device behind " + c.Interface + ", which does not make it a holder",
		}[c.Device]
		switch {
		case c.Lost:
			text += ", lost to another holder: its duplicate address detection failed"
		case !c.Settled:
			text += ", still tentative"
		}
		if c.Unanswered > 0 {
			text += fmt.Sprintf(", probed %d times without an answer", c.Unanswered)
		}
		wrapped(out, 4, fmt.Sprintf("  %s: %s", cmp.Or(cli.PodName(c.Pod), c.Netns), text))
	}
}

func printStory(out io.Writer, story api.Story) {
	several := len(story.Nodes) > 1
	where := "on node "
	if several {
		where = "on nodes "
	}
	wrapped(out, 2, fmt.Sprintf("%s in network %s %s%s", story.IP, story.Network, where, cli.List(story.Nodes)))
	wrapped(out, 2, fmt.Sprintf("Verdict: %s.", story.Verdict))
	for _, v := range story.Verdicts {
		wrapped(out, 4, fmt.Sprintf("  %s: %s.", cli.List(v.Nodes), v.Verdict))
	}
	if c := story.Conflict; c != nil {
		fmt.Fprintf(out, "Conflict %s, %s: %s", c.ID, c.Scope, paint(out, c.State))
		switch {
		case !c.ResolvedAt.IsZero():
			fmt.Fprintf(out, " %s ago, was open for %s", cli.Age(c.ResolvedAt), cli.Span(c.ResolvedAt.Sub(c.SuspectedAt)))
		case !c.ConfirmedAt.IsZero():
			fmt.Fprintf(out, " %s after the second holder was seen", cli.Span(c.ConfirmedAt.Sub(c.SecondSeen)))
		}
		fmt.Fprintln(out)
		if c.State == "confirmed" {
			wrapped(out, 2, "  If several are meant to have it (anycast, a virtual IP), list it under \"shared\" in the configuration.")
		}
	}
	fmt.Fprintln(out, "\nHolders, the oldest first:")
	nodes, severalNodes := cli.NodesOf(story.Bindings)
	for n, b := range story.Bindings {
		name := cli.DescribeHolder(b)
		if several || severalNodes || !slices.Contains(story.Nodes, b.Node) {
			name += " on node " + nodes[n]
		}
		wrapped(out, 4, "  "+name)
		wrapped(out, 6, fmt.Sprintf("      interface %s, MAC %s, evidence %s", cmp.Or(b.Interface, "unknown"), cmp.Or(b.MAC, "unknown"), b.Evidence))
		if b.Pod != nil {
			wrapped(out, 6, fmt.Sprintf("      netns %s, pod UID %s", b.Netns, b.Pod.UID))
		}
		fmt.Fprintf(out, "      first seen %s (%s ago), last seen %s ago\n",
			b.FirstSeen.Local().Format("2006-01-02 15:04:05.000"), cli.Age(b.FirstSeen), cli.Age(b.LastSeen))
	}
	if len(story.Bindings) == 0 {
		fmt.Fprintln(out, "  none now")
	}
	if len(story.Notes) == 0 {
		return
	}
	fmt.Fprintln(out, "\nWhat happened:")
	for _, note := range story.Notes {
		wrapped(out, 15, fmt.Sprintf("  %s  %s%s", note.At.Local().Format("15:04:05.000"), notePrefix(note, several), note.Text))
	}
}

// notePrefix names the holder of a note and, if several nodes have notes, the node that wrote it.
func notePrefix(note api.Note, several bool) string {
	holder := cmp.Or(cli.PodName(note.Pod), note.Netns)
	if note.HolderNode != "" {
		holder = strings.TrimSpace(holder + " on " + note.HolderNode)
	}
	if holder != "" {
		holder += ": "
	}
	if several {
		return "[" + note.Node + "] " + holder
	}
	return holder
}
