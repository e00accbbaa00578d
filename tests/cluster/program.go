package cluster

import (
	"os"
	"path/filepath"

	"github.com/dupip/dupip/tests/lab"
)

// Version is that of Kubernetes. kubernetes/go.mod must agree.
const Version = "v1.35.4"

// Program is the path of the command with all programs of Kubernetes. The first build takes minutes.
func Program() (string, error) {
	// The versions that the programs say of themselves: charts ask for them.
	const stamp = "-s -w -X k8s.io/component-base/version.gitVersion=" + Version + " -X k8s.io/client-go/pkg/version.gitVersion=" + Version
	// Packages of tests are below the root of their module.
	dir, err := filepath.Abs("kubernetes")
	if err != nil {
		return "", err
	}
	return lab.BuildCached(dir, ".", lab.Quickly, "-ldflags", stamp)
}

// commands makes a folder with what users have in their PATH, and links to it.
func commands(dir string, programs map[string]string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for name, line := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexec "+line+" \"$@\"\n"), 0o755); err != nil {
			return err
		}
	}
	return nil
}
