// Command manifests writes what is rendered from the chart, the chart's own page, and what the chart has a copy
// of, as `make manifests` does. It runs in the folder tests.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/dupip/dupip/tests/helm"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	// Copies, because not everything that fetches charts follows symlinks.
	for _, name := range []string{"alerts.yaml", "dashboard.json"} {
		data, err := os.ReadFile("../deploy/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile("../deploy/chart/"+name, data, 0o644); err != nil {
			return err
		}
	}
	if err := helm.Docs(ctx, "../deploy/chart"); err != nil {
		return err
	}
	manifest, err := helm.Manifest(ctx, "../deploy/chart")
	if err != nil {
		return err
	}
	return os.WriteFile("../deploy/dupip.yaml", manifest, 0o644)
}
