package query

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// collected is what the agents have about an address, for an archive.
type collected struct {
	at          time.Time
	of          *document.Conflict // nil is the last one of each network
	ip          netip.Addr
	captures    document.Captures
	explanation document.Explanation
	nodes       document.Nodes
}

func newCapture(p *Program) *cobra.Command {
	var file ArchiveFile
	cmd := &cobra.Command{
		Use:   "capture IP|ID",
		Short: "Write what is known of a conflict into one file, with packets of all holders",
		Long: `Write what is known of an address, or of the conflict with an id, into one archive (tar.gz): packets that its holders sent from the suspicion on, ` +
			`as pcapng for Wireshark and tshark; its history, probes and answers, routes, books and judgement; the nodes and their versions. ` +
			`Packets of ARP and NDP are whole; of all others it has the headers only.`,
		Example: p.examples(`  dupip capture 10.0.0.1
  dupip capture 5f3a9b21-1 -o /tmp/capture.tar.gz
  dupip capture 10.0.0.1 -o - | ssh jump tar -tz`),
		Args: OneArgument("capture needs one IP address, or the id of a conflict", "10.0.0.1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := file.Check(); err != nil {
				return err
			}
			client, err := p.Client(cmd)
			if err != nil {
				return err
			}
			c, err := p.collect(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			name := fmt.Sprintf("dupip-%s-%s", strings.ReplaceAll(c.ip.String(), ":", "-"), c.at.Format("20060102T150405Z"))
			archive, err := p.archive(name, c)
			if err != nil {
				return err
			}
			out, written, err := file.Write(cmd, name, archive)
			if err == nil {
				c.print(p.printer(out), written)
			}
			return err
		},
		ValidArgsFunction: completeAddress(p),
	}
	file.Flag(cmd, "dupip-IP-TIME.tar.gz")
	p.Flags(cmd)
	return cmd
}

// conflictID is the id of a conflict as package detector makes it.
var conflictID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9]{1,10}$`)

// collect asks the agents about an address, or a conflict.
func (p *Program) collect(ctx context.Context, client *api.Client, about string) (*collected, error) {
	c := &collected{at: time.Now().UTC()}
	if id := about; conflictID.MatchString(id) {
		doc, err := client.Conflicts(ctx, document.Query{All: true, Cluster: true})
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(doc.Conflicts, func(c document.Conflict) bool { return c.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("no conflict has the id %s: \"dupip conflicts --all -o json\" has those that are known", id)
		}
		c.of = &doc.Conflicts[i]
		about = c.of.IP.String()
	}
	ip, err := netip.ParseAddr(about)
	if err != nil {
		return nil, fmt.Errorf("%q: neither an IP address nor the id of a conflict", about)
	}
	c.ip = ip.Unmap()
	q := document.Query{IP: c.ip, Cluster: true}
	if c.captures, err = client.Captures(ctx, q); err == nil {
		if c.explanation, err = client.Explain(ctx, q); err == nil {
			c.nodes, err = client.Nodes(ctx, document.Query{})
		}
	}
	if err == nil && len(c.explanation.Stories)+len(c.captures.Captures) == 0 {
		err = fmt.Errorf("nothing is known of %s: \"dupip explain %[1]s\" says where it was looked for", c.ip)
	}
	document.Sanitize(&c.captures)
	c.captures.Captures = capturesOf(c.captures.Captures, c.of)
	return c, err
}

// capturesOf returns the captures of a conflict or, if that is nil, of the last conflict of each network. Nodes number conflicts for
// themselves, so what overlaps in time is one conflict.
func capturesOf(all []document.Capture, conflict *document.Conflict) (part []document.Capture) {
	begin, end := make(map[string]time.Time), time.Time{} // by network
	if conflict != nil {
		begin[conflict.Network], end = conflict.SuspectedAt, conflict.ResolvedAt
	}
	overlaps := func(v document.Capture) bool {
		b, ok := begin[v.Network]
		return ok && (v.Until.IsZero() || !v.Until.Before(b)) && (end.IsZero() || !v.Since.After(end))
	}
	lastFirst := slices.SortedFunc(slices.Values(all), func(a, b document.Capture) int { return b.Since.Compare(a.Since) })
	for _, v := range lastFirst {
		// A holder that left early may have been there before the last one came.
		if _, begun := begin[v.Network]; conflict == nil && (!begun || overlaps(v)) {
			begin[v.Network] = v.Since
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(v document.Capture) bool { return !overlaps(v) })
}

// names are those of the holders of the captures, always with the node.
func (c *collected) names() []string {
	var of []document.Binding
	for _, v := range c.captures.Captures {
		of = append(of, document.Binding{Holder: v.Holder})
	}
	return namesWithNodes(of)
}

func namesWithNodes(holders []document.Binding) []string {
	names := say.Labels(document.Conflict{Holders: holders})
	if nodes, several := say.NodesOf(holders); !several {
		for n := range names {
			names[n] += " on " + nodes[n]
		}
	}
	return names
}

// print says what is in the file, and what is not.
func (c *collected) print(p *cli.Printer, file string) {
	var of []string
	frames := 0
	for n, name := range c.names() {
		v := c.captures.Captures[n]
		frames += len(v.Frames)
		of = append(of, fmt.Sprintf("%d of %s", len(v.Frames), name))
	}
	text := "no frames"
	if len(of) > 0 {
		text = fmt.Sprintf("%s (%s)", say.Plural(frames, "frame", "frames"), strings.Join(of, ", "))
	}
	nodes := make(map[string]bool) // one that has booted again is there twice
	for _, n := range c.nodes.Nodes {
		if n.Role == "" {
			nodes[n.Name] = true
		}
	}
	lines := []string{fmt.Sprintf("%s: %s, the history of %s, its routes and books, the versions of %s.",
		detector.Printable(file), text, c.ip, say.Plural(len(nodes), "node", "nodes"))}
	for _, line := range append(lines, c.missing()...) {
		if p.Width > 0 { // in a terminal
			line = p.Wrap(line)
		}
		fmt.Fprintln(p.Out, line)
	}
}

// missing says what is not there, and why.
func (c *collected) missing() (lines []string) {
	if n := len(c.captures.Missing); n > 0 {
		lines = append(lines, fmt.Sprintf("Missing: %d of %d nodes did not answer: %s.", n, c.captures.Asked, say.List(c.captures.Missing)))
	}
	if n := len(c.captures.Unchecked); n > 0 {
		lines = append(lines, "Missing: "+say.List(c.captures.Unchecked)+".")
	}
	if of := c.uncaptured(); len(of) > 0 && len(lines) == 0 {
		lines = append(lines, fmt.Sprintf("Missing: frames of %s: none were captured. Its agent has logged why, captures for too many others, or has started since.", say.List(of)))
	} else if len(c.captures.Captures) == 0 && len(lines) == 0 {
		lines = append(lines, "Missing: frames. Agents keep none from before they started, nor of a suspicion that has faded.")
	}
	lost := 0
	for _, v := range c.captures.Captures {
		lost += v.Lost
	}
	if lost > 0 {
		lines = append(lines, fmt.Sprintf("Missing: %s that came too fast.", say.Plural(lost, "frame", "frames")))
	}
	if n := c.captures.Omitted; n > 0 {
		lines = append(lines, fmt.Sprintf("Missing: the frames of %s, which did not fit into the answers.", say.Plural(n, "holder", "holders")))
	}
	return lines
}

// uncaptured are the names of the holders in the conflict of which there is no capture.
func (c *collected) uncaptured() (names []string) {
	for _, story := range c.explanation.Stories {
		if story.Conflict == nil || story.Conflict.State == detector.Suspected || c.of != nil && c.of.ID != story.Conflict.ID {
			continue
		}
		for n, name := range namesWithNodes(story.Conflict.Holders) {
			h := story.Conflict.Holders[n]
			if !slices.ContainsFunc(c.captures.Captures, func(v document.Capture) bool {
				return v.Network == story.Network && v.NodeID() == h.NodeID() && v.Netns == h.Netns
			}) {
				names = append(names, name)
			}
		}
	}
	return names
}
