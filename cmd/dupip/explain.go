package main

import (
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
)

func newExplain(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain IP",
		Short: "Tell the story of one address: who has it, how we know, and why it is or is not a conflict",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ip, err := netip.ParseAddr(args[0])
			if err != nil {
				return fmt.Errorf("%q: not an IP address", args[0])
			}
			document, err := g.client().Explain(cmd.Context(), ip)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if done, err := g.output.document(out, document); done {
				return err
			}
			printExplanation(out, document)
			return nil
		},
	}
	g.addTo(cmd)
	return cmd
}

func printExplanation(out io.Writer, e api.Explanation) {
	if len(e.Stories) == 0 {
		fmt.Fprintf(out, "%s was not seen on node %s.\n", e.IP, e.Node)
	}
	for n, story := range e.Stories {
		if n > 0 {
			fmt.Fprintln(out)
		}
		printStory(out, e.Node, story)
	}
	if len(e.Configured) == 0 {
		return
	}
	fmt.Fprintln(out, "\nConfigured, by the kernel's own lists:")
	for _, c := range e.Configured {
		text := map[string]string{
			"peer":      "on the pod's end of " + c.Interface,
			"loopback":  "on a loopback device behind " + c.Interface,
			"elsewhere": "on another device behind " + c.Interface + ", which does not make it a holder",
		}[c.Device]
		if !c.Settled {
			text += ", not settled yet"
		}
		if c.Unanswered > 0 {
			text += fmt.Sprintf(", asked %d times without an answer", c.Unanswered)
		}
		name := c.Netns
		if c.Pod != nil {
			name = c.Pod.String()
		}
		wrapped(out, 4, fmt.Sprintf("  %s: %s", name, text))
	}
}

func printStory(out io.Writer, node string, story api.Story) {
	fmt.Fprintf(out, "%s in network %s on node %s\n", story.IP, story.Network, node)
	wrapped(out, 2, fmt.Sprintf("Verdict: %s.", story.Verdict))
	if c := story.Conflict; c != nil {
		fmt.Fprintf(out, "Conflict %s, %s: %s", c.ID, c.Scope, paint(out, c.State))
		switch {
		case !c.ResolvedAt.IsZero():
			fmt.Fprintf(out, " %s ago, was open for %s", age(c.ResolvedAt), span(c.ResolvedAt.Sub(c.SuspectedAt)))
		case !c.ConfirmedAt.IsZero():
			fmt.Fprintf(out, " %s after the second holder was seen", span(c.ConfirmedAt.Sub(c.SecondSeen)))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, "\nHolders, the elder first:")
	for _, b := range story.Bindings {
		fmt.Fprintf(out, "  %s\n", who(b))
		fmt.Fprintf(out, "      interface %s, MAC %s, evidence %s\n", b.Interface, b.MAC, b.Evidence)
		if b.Pod != nil {
			wrapped(out, 6, fmt.Sprintf("      netns %s, pod UID %s", b.Netns, b.Pod.UID))
		}
		fmt.Fprintf(out, "      first seen %s (%s ago), last seen %s ago\n",
			b.FirstSeen.Local().Format("2006-01-02 15:04:05.000"), age(b.FirstSeen), age(b.LastSeen))
	}
	if len(story.Bindings) == 0 {
		fmt.Fprintln(out, "  none now")
	}
	if len(story.Notes) == 0 {
		return
	}
	fmt.Fprintln(out, "\nWhat happened:")
	for _, note := range story.Notes {
		holder := note.Netns
		if note.Pod != nil {
			holder = note.Pod.String()
		}
		if holder != "" {
			holder += ": "
		}
		wrapped(out, 15, fmt.Sprintf("  %s  %s%s", note.At.Local().Format("15:04:05.000"), holder, note.Text))
	}
}
