// Command helm is Helm, with the libraries of this module's Kubernetes: they are the most of it, and are compiled once.
package main

import (
	"errors"
	"fmt"
	"os"

	"helm.sh/helm/v4/pkg/cmd"
	"helm.sh/helm/v4/pkg/kube"
)

// As cmd/helm of helm.sh/helm/v4, which can be no package of another program.
func main() {
	kube.ManagedFieldsManager = "helm"
	root, err := cmd.NewRootCmd(os.Stdout, os.Args[1:], cmd.SetupLogging)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	if err := root.Execute(); err != nil {
		if exit, ok := errors.AsType[cmd.CommandError](err); ok {
			os.Exit(exit.ExitCode)
		}
		os.Exit(1)
	}
}
