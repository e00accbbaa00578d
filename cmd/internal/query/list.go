package query

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// The exit codes with --exit-code.
const (
	exitFound   = 3 // a conflict is open, or there is a finding
	exitPartial = 4 // there is none in what was looked at, which is not all
)

// list is a command that prints a document T with a list of E.
type list[T, E any] struct {
	use, short, long, example string
	key                       string // of the list, in the document

	get      asking[T]
	coverage func(T) document.Coverage
	elements func(T) []E
	orders   cli.Orders[E]
	text     func(*cli.Printer, T)
	name     func(E) string // what -o name prints
	// holders are those of what can be selected, nil if nothing can be.
	holders func(T) []document.Binding
	// flags adds flags; most lists have those of [queryFlags.addTo].
	flags func(*queryFlags, *cobra.Command)

	// What follows is for some lists only. states are the values of --state.
	states []string
	// exit is the exit code with --exit-code, which exitCode describes.
	exit     func(T) int
	exitCode string
	// gaps prints what the document lacks, for -o name, whose list does not say so; nil if that is its coverage.
	gaps  func(*cli.Printer, T)
	watch *watching
}

// watching is --watch of a list: print prints events, and excludes the flags in alone.
type watching struct {
	print func(*cobra.Command, *Program, document.Query) error
	usage string
	local bool // only this node's
	alone []string
}

// command returns the command.
func (l list[T, E]) command(p *Program) *cobra.Command {
	flags := queryFlags{program: p, orders: slices.Sorted(maps.Keys(l.orders))}
	var watch, exitCode bool
	cmd := &cobra.Command{
		Use: l.use, Short: l.short, Long: l.long, Example: p.examples(l.example), Args: NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := flags.parse()
			if err != nil {
				return err
			}
			if q.State != "" && !slices.Contains(l.states, q.State) {
				return fmt.Errorf("--state %q: must be %s", q.State, cli.Disjoin(l.states))
			}
			if watch {
				return l.watch.print(cmd, p, q)
			}
			doc, err := l.show(cmd, &flags, q)
			if err == nil && exitCode && l.exit(doc) != 0 {
				return ExitError(l.exit(doc))
			}
			return err
		},
	}
	watches := l.watch != nil && (!p.Cluster || !l.watch.local)
	if watches {
		cmd.Flags().BoolVarP(&watch, "watch", "w", false, l.watch.usage)
	}
	if l.exit != nil {
		cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 3 when "+l.exitCode)
	}
	if l.states != nil {
		cmd.Flags().StringVar(&flags.query.State, "state", "", "only "+l.use+" in this state: "+cli.Disjoin(l.states))
		Complete(cmd, "state", l.states...)
	}
	cmd.Flags().StringVar(&flags.sortBy, "sort-by", "", "order of the list: "+strings.Join(flags.orders, ", "))
	Complete(cmd, "sort-by", flags.orders...)
	if l.flags != nil {
		l.flags(&flags, cmd)
		for name, value := range selectors { // from what the document has, so that each selects something of it
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, completion(p, flags.parse, l.get, l.holders, value))
			}
		}
	}
	if watches {
		for _, other := range l.watch.alone {
			exclude(cmd, "watch", other)
		}
	}
	p.addTo(cmd)
	return cmd
}

// show gets the document and prints it.
func (l list[T, E]) show(cmd *cobra.Command, flags *queryFlags, q document.Query) (T, error) {
	doc, err := get(cmd, flags.program, l.get, q)
	if err == nil {
		err = Unanswered(q.Node, l.coverage(doc))
	}
	if err != nil {
		return doc, err
	}
	p, format := flags.program.Printer(cmd), flags.program.Output
	p.List = l.key
	p.Selected = q != document.Query{All: q.All, Cluster: q.Cluster, Node: q.Node}
	if p.Sorted = flags.sortBy != ""; p.Sorted {
		slices.SortStableFunc(l.elements(doc), l.orders[flags.sortBy])
	}
	text := l.text
	if format == cli.Names {
		text = l.names
	}
	err = cli.Show(p, format, doc, text)
	rows := format == cli.Names || strings.HasPrefix(string(format), cli.Columns) || p.NoHeaders && (format == cli.Table || format == cli.Wide)
	if err != nil || !rows || cmd.Context().Err() != nil { // it could not be printed, or says itself what is missing
		return doc, err
	}
	// Rows are for programs, so what is missing is said elsewhere.
	document.Sanitize(&doc)
	problems := cli.NewPrinter(cmd.ErrOrStderr())
	problems.Out = cli.ForLocale(problems.Out)
	if l.gaps != nil {
		l.gaps(problems, doc)
	} else {
		problems.Coverage(l.coverage(doc), "addresses")
	}
	return doc, nil
}

// names prints what the rows are about.
func (l list[T, E]) names(p *cli.Printer, doc T) {
	printed := make(map[string]bool)
	for _, e := range l.elements(doc) {
		if name := l.name(e); !printed[name] {
			printed[name] = true
			fmt.Fprintln(p.Out, name)
		}
	}
}

// events returns what prints the events of a watch as they come, below a header.
func events[E any](
	watch func(*api.Client, context.Context, document.Query, func(), func(E) error) error,
	header string, text func(*cli.Printer, E), name func(E) string,
) func(*cobra.Command, *Program, document.Query) error {
	return func(cmd *cobra.Command, program *Program, q document.Query) error {
		client, err := program.Client(cmd)
		if err != nil {
			return err
		}
		if out, ok := cmd.OutOrStdout().(output); ok {
			go out.followReader(cmd.Context())
		}
		p, text := program.Printer(cmd), text
		if program.Output == cli.Names {
			text = func(p *cli.Printer, event E) { fmt.Fprintln(p.Out, name(event)) }
		}
		return watch(client, cmd.Context(), q,
			func() { p.EventsHeader(program.Output, header) },
			func(event E) error { return cli.Show(p, program.Output, event, text) })
	}
}

// Unanswered returns an error if --node was given and that node did not answer. An empty table would
// mean that it has nothing.
func Unanswered(node string, c document.Coverage) error {
	if node == "" || c.Asked == 0 || len(c.Missing) < c.Asked {
		return nil
	}
	return fmt.Errorf("node %s does not answer: \"dupip nodes\" shows its state", detector.Printable(node))
}

// queryFlags are the flags of commands that print a list of one agent or of all.
type queryFlags struct {
	program    *Program
	query      document.Query
	ip, sortBy string
	orders     []string
}

// addTo adds the flags of lists that can be about less to a command.
func (q *queryFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&q.ip, "ip", "", "only this address, or those of a prefix: 10.0.0.0/24")
	flags.StringVarP(&q.query.Namespace, "namespace", "n", "", "only pods of this namespace")
	flags.BoolP("all-namespaces", "A", false, "pods of all namespaces, as without --namespace")
	exclude(cmd, "all-namespaces", "namespace")
	flags.StringVar(&q.query.Pod, "pod", "", "only this pod: NAME or NAMESPACE/NAME")
	flags.StringVar(&q.query.Network, "network", "", "only this network")
	flags.StringVar(&q.query.Node, "node", "", "ask the agent of this node")
	if !q.program.Cluster {
		flags.BoolVar(&q.query.Cluster, "cluster", false, "ask the agents of all nodes, not only this one")
		exclude(cmd, "cluster", "node")
	}
	_ = cmd.RegisterFlagCompletionFunc("node", completeNodes(q.program))
}

// parse reads --ip.
func (q *queryFlags) parse() (document.Query, error) {
	query := q.query
	query.Cluster = query.Cluster || q.program.Cluster && query.Node == ""
	var err error
	switch {
	case q.ip == "":
	case strings.Contains(q.ip, "/"):
		if query.Prefix, err = netip.ParsePrefix(q.ip); err != nil {
			return query, fmt.Errorf("--ip %q: not a prefix such as 10.0.0.0/24", q.ip)
		}
	default:
		if query.IP, err = netip.ParseAddr(q.ip); err != nil {
			return query, fmt.Errorf("--ip %q: not an IP address or a prefix", q.ip)
		}
	}
	if q.sortBy != "" && !slices.Contains(q.orders, q.sortBy) {
		return query, fmt.Errorf("--sort-by %q: must be %s", q.sortBy, cli.Disjoin(q.orders))
	}
	return query, nil
}
