package query

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

func newExplain(p *Program) *cobra.Command {
	var local bool
	var namespace string
	cmd := &cobra.Command{
		Use:   "explain IP|POD",
		Short: "Show the history of one address, or of a pod's, and why it is a conflict or not",
		Example: p.examples(`  dupip explain 10.0.0.1
  dupip explain shop/web-0
  dupip explain web-0 -n shop
  dupip explain fd00::1 --local`),
		Args: OneArgument("explain needs one IP address, or the name of one pod", "10.0.0.1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := p.Client(cmd)
			if err != nil {
				return err
			}
			ips := make([]netip.Addr, 1)
			if ips[0], err = netip.ParseAddr(args[0]); err != nil {
				q := document.Query{Pod: args[0], Namespace: namespace, Cluster: !local}
				if ips, err = addressesOf(cmd, client, q); err != nil {
					return err
				}
			}
			printer := p.Printer(cmd)
			if len(ips) > 1 {
				printer.EventsHeader(p.Output, "")
			}
			for n, ip := range ips {
				doc, err := client.Explain(cmd.Context(), document.Query{IP: ip, Cluster: !local})
				if err != nil {
					return err
				}
				if err := cli.Show(printer, p.Output, doc, func(printer *cli.Printer, doc document.Explanation) {
					if n > 0 {
						fmt.Fprintln(printer.Out)
					}
					printer.Explanation(doc)
				}); err != nil {
					return err
				}
			}
			return nil
		},
		ValidArgsFunction: OnlyArgument(completion(p, p.all, (*api.Client).Bindings, addressesAndPods, func(text string) string { return text })),
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the pod")
	_ = cmd.RegisterFlagCompletionFunc("namespace", completion(p, p.all, (*api.Client).Bindings, bindingList.elements, selectors["namespace"]))
	if !p.Cluster {
		cmd.Flags().BoolVar(&local, "local", false, "ask this agent only, not those of all nodes")
	}
	p.addTo(cmd)
	return cmd
}

func addressesAndPods(doc document.Bindings) (texts []string) {
	for _, b := range doc.Bindings {
		texts = append(texts, selectors["ip"](b), selectors["pod"](b))
	}
	return texts
}

// addressesOf returns the addresses that a pod is seen with.
func addressesOf(cmd *cobra.Command, client *api.Client, q document.Query) (ips []netip.Addr, err error) {
	pod := q.Pod
	if strings.ContainsAny(pod, ":,") || strings.Trim(pod, ".0123456789/") == "" { // that was to be an address
		return nil, fmt.Errorf("%q: not an IP address", pod)
	}
	doc, err := client.Bindings(cmd.Context(), q)
	if err != nil {
		return nil, err
	}
	var pods []string
	for _, b := range doc.Bindings {
		pods, ips = append(pods, say.Who(b)), append(ips, b.IP)
	}
	slices.Sort(pods)
	slices.SortFunc(ips, netip.Addr.Compare)
	pods, ips = slices.Compact(pods), slices.Compact(ips)
	switch {
	case len(pods) == 1:
		return ips, nil
	case len(pods) > 1:
		return nil, fmt.Errorf("%q: %s have that name: say which", pod, detector.Printable(say.List(pods)))
	case len(doc.Missing) > 0:
		return nil, errors.New(strings.Join(append([]string{fmt.Sprintf("%q: no address of such a pod is seen", pod)}, say.Coverage(doc.Coverage, "pods")...), "; "))
	}
	return nil, fmt.Errorf("%q: neither an IP address nor a pod with an address that is seen; \"%s bindings\" lists all", pod, cmd.Root().CommandPath())
}
