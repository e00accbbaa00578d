// Command kubernetes is all programs of a Kubernetes cluster: the first argument is the name of one. All are the real ones but
// crictl, which is no module that the go command finds: "crictl rmp -f ID" makes the same calls, and kube-vip: see kubeVIP.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	cri "k8s.io/cri-client/pkg"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// commands are the programs whose command line is cobra's.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubectl":                 func() *cobra.Command { return kubectl.NewDefaultKubectlCommand() },
}

func main() {
	if len(os.Args) < 2 {
		fatal("name a program: etcd, coredns, crictl, kube-apiserver, kube-controller-manager, kube-scheduler, kube-vip, kubelet or kubectl")
	}
	name := os.Args[1]
	os.Args = os.Args[1:]
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "coredns":
		dnsserver.Directives = []string{"errors", "kubernetes"} // in the order in which they handle a query
		coremain.Run()
	case "crictl":
		if err := removePod(os.Args[1:]); err != nil {
			fatal("crictl: " + err.Error())
		}
	case "kube-vip":
		if err := kubeVIP(os.Args[1:]); err != nil {
			fatal("kube-vip: " + err.Error())
		}
	default:
		command, ok := commands[name]
		if !ok {
			fatal("no such program: " + name)
		}
		os.Exit(cli.Run(command()))
	}
}

func removePod(args []string) error {
	if len(args) != 3 || args[0] != "rmp" || args[1] != "-f" {
		return errors.New("the arguments must be: rmp -f ID")
	}
	runtime, err := cri.NewRemoteRuntimeService("unix:///run/containerd/containerd.sock", time.Minute, nil, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	return errors.Join(runtime.StopPodSandbox(ctx, args[2]), runtime.RemovePodSandbox(ctx, args[2]))
}

func fatal(text string) {
	fmt.Fprintln(os.Stderr, "kubernetes:", text)
	os.Exit(2)
}
