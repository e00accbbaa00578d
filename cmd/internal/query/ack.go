package query

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// NewAck returns the command that says that somebody works on a conflict. tell tells all agents, and returns the conflicts that it is about.
func NewAck(p *Program, tell func(*cobra.Command, document.Query) (document.Conflicts, error)) *cobra.Command {
	var network string
	var ack cluster.Ack
	var lasts time.Duration
	var end bool
	cmd := &cobra.Command{
		Use:   "ack IP",
		Short: "Say that you work on a conflict, and until when",
		Long: `Say that you work on a conflict: everywhere where it is shown, on all nodes, it says so from then on. It is still shown, and its alert goes on: the command for ` +
			`a silence in Alertmanager is printed. It ends when the time is over or the conflict is, and not when an agent restarts.`,
		Example: p.examples(`  dupip ack 10.0.0.1 --for 8h --why "node is being replaced"
  dupip ack 10.0.0.1 --end`),
		Args: OneArgument("ack needs one IP address", "10.0.0.1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ip, err := netip.ParseAddr(args[0])
			if err != nil {
				return fmt.Errorf("%q: not an IP address", args[0])
			}
			if ack.Seconds = int(lasts.Seconds()); end {
				ack.Seconds = 0
			}
			a := document.Ack{By: ack.By, Why: ack.Why, At: time.Now(), Seconds: ack.Seconds}
			if err := a.Check(); err != nil {
				return err
			}
			if ack.Seconds == 0 && !end {
				return errors.New("--for must be 1m or more; --end ends it")
			}
			doc, err := tell(cmd, document.Query{IP: ip.Unmap(), Network: network, Ack: ack})
			if err != nil {
				return err
			}
			if len(doc.Conflicts) == 0 {
				return errors.New(strings.TrimSpace("no confirmed conflict of " + ip.String() + " is open. " + missing(doc.Coverage)))
			}
			return cli.Show(p.Printer(cmd), p.Output, doc, func(printer *cli.Printer, doc document.Conflicts) { printAck(printer, doc, a) })
		},
		ValidArgsFunction: completeAddress(p),
	}
	cmd.Flags().DurationVar(&lasts, "for", 8*time.Hour, "how `long` it holds: 1m to 168h")
	cmd.Flags().StringVar(&ack.Why, "why", "", "`reason`, for others to read")
	cmd.Flags().StringVar(&ack.By, "by", self(), "your `name`")
	cmd.Flags().StringVar(&network, "network", "", "only the conflict in this `network`")
	cmd.Flags().BoolVar(&end, "end", false, "end it now")
	exclude(cmd, "end", "for")
	p.addTo(cmd)
	return cmd
}

// self is who runs the program, as far as it knows.
func self() string {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); err == nil {
		name = cmp.Or(name, u.Username)
	}
	return cmp.Or(name, os.Getenv("USER"), "somebody")
}

func missing(c document.Coverage) string {
	if len(c.Missing) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d nodes did not answer: %s.", len(c.Missing), c.Asked, say.List(c.Missing))
}

func printAck(p *cli.Printer, doc document.Conflicts, a document.Ack) {
	for _, c := range doc.Conflicts {
		text := say.Acknowledged(c.Acknowledged)
		if text == "" {
			text = "Not acknowledged any more."
		}
		fmt.Fprintln(p.Out, strings.TrimSuffix(p.Wrap(say.InNetwork(c.IP.String(), c.Network)+": "+detector.Printable(text)), "\n"))
	}
	if text := missing(doc.Coverage); text != "" {
		fmt.Fprintln(p.Out, strings.TrimSuffix(p.Wrap(text+" They are not told."), "\n"))
	}
	if a.Seconds == 0 {
		return
	}
	fmt.Fprintln(p.Out, "\nIts alert goes on. To silence it in Alertmanager:")
	for _, c := range doc.Conflicts {
		fmt.Fprintf(p.Out, "  amtool silence add alertname=DupipDuplicateAddress ip=%s network=%s --duration=%ds --author=%s --comment=%s\n",
			c.IP, Quoted(c.Network), a.Seconds, Quoted(a.By), Quoted(cmp.Or(a.Why, "acknowledged")))
	}
}
