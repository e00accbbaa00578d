// Command kubectl-dupip shows what dupip's agents have found, as "kubectl dupip": it forwards a port to a reporter and asks that.
// It needs the right to forward ports to the reporter's pods, and none to run programs in pods.
package main

import (
	"cmp"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/cmd/internal/query"
)

// version is set at build time by -ldflags "-X main.version=…".
var version string

// plugin has the commands.
type plugin struct {
	query.Program
	namespace  string               // where dupip is installed
	connection map[string]*[]string // the values of kubectl's flags
	kubectls   sync.WaitGroup       // has the processes that run
}

func main() { os.Exit(run()) }

func run() int {
	p := new(plugin)
	root := p.root()
	// Completion of kubectl's arguments runs this program by that name (k8s.io/kubectl/pkg/cmd/plugin_completion.go).
	if filepath.Base(os.Args[0]) == "kubectl_complete-dupip" {
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	// If the terminal closes, or the reader of a pipe ends, this program must still end its kubectl. A program that is notified of
	// SIGPIPE is not ended by it: writing returns an error instead.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	code := query.Run(root, syscall.SIGHUP)
	p.kubectls.Wait()
	return code
}

func (p *plugin) root() *cobra.Command {
	p.Program = query.Program{
		Name: "kubectl dupip", Version: query.BuildVersion(version), Cluster: true, Flags: func(*cobra.Command) {}, // the root has them
		Client: func(cmd *cobra.Command) (*api.Client, error) {
			f, err := p.connect(cmd.Context(), 0)
			if err != nil {
				return nil, err
			}
			return f.client(), nil
		},
	}
	root := p.Root(&cobra.Command{
		Use:         "kubectl-dupip",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: p.Name},
		Short:       "Shows duplicate pod IPs of the cluster, as dupip's agents see them",
		Long: `kubectl dupip shows duplicate pod IPs of the cluster, as dupip's agents see them.

It forwards a port to one of dupip's reporters (the chart's reporter.enabled), by the kubectl of PATH or of the variable KUBECTL, ` +
			`and asks it about all nodes. You need the rights to get and list pods in dupip's namespace, and to create portforwards there.

Exit codes: 0 done; 1 failed; 3 with --exit-code, if there is a conflict or a finding; ` +
			`4 with --exit-code, if there is none in what was looked at, which is not all.`,
		Example: `  kubectl dupip conflicts
  kubectl dupip explain 10.0.0.1
  kubectl dupip bindings --pod shop/web-0
  kubectl dupip ui --context prod`,
		// What it makes is for a program of the name kubectl-dupip, which nobody types.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	})
	root.PersistentFlags().StringVar(&p.namespace, "dupip-namespace", cmp.Or(os.Getenv("DUPIP_NAMESPACE"), cli.PluginNamespace),
		"namespace in which dupip is installed; also the variable DUPIP_NAMESPACE")
	p.connection = make(map[string]*[]string)
	for _, flag := range passed {
		p.connection[flag.name] = root.PersistentFlags().StringArray(flag.name, nil, flag.usage)
	}
	query.CompletePaths(root, "kubeconfig")
	check := root.PersistentPreRunE
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		p.Commands = p.Name
		if cmd.Flags().Changed("dupip-namespace") { // the variable applies to the next command, too
			p.Commands += " --dupip-namespace " + query.Quoted(p.namespace)
		}
		for _, flag := range passed {
			for _, value := range *p.connection[flag.name] {
				p.Commands += " --" + flag.name + " " + query.Quoted(value)
			}
		}
		return check(cmd, args)
	}
	root.AddCommand(query.NewUI(&p.Program, "", "port of this machine", p.serve), p.newDoctor(), p.newSysdump(), query.NewAck(&p.Program, p.acknowledge))
	return root
}
