// Package helm runs the Helm that the chart is made and tested with, and renders with it
// the manifest that is in the repository. It is built from source by the go command, as the
// linter is, so it is not among this module's dependencies.
//
// It must not know what is in the chart.
package helm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// Module is the pinned version. The first build takes two minutes on two cores.
const Module = "helm.sh/helm/v4/cmd/helm@v4.3.1"

// Run runs helm with some arguments, with the text on its standard input, and returns what
// it printed. An error has only the text from standard error. The user's configuration is not read.
// Run may be called concurrently.
func Run(ctx context.Context, stdin string, args ...string) (string, error) {
	path, err := program()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	none := filepath.Join(filepath.Dir(path), "none")
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HELM_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "HELM_CACHE_HOME="+none, "HELM_CONFIG_HOME="+none, "HELM_DATA_HOME="+none)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			return stdout.String(), errors.New(text)
		}
		return stdout.String(), fmt.Errorf("running helm: %w", err)
	}
	return stdout.String(), nil
}

// program is the path of helm in the go command's cache: `go run` itself takes a second
// each time.
var program = sync.OnceValues(func() (string, error) {
	var path string
	// What is built is run from a temporary folder; what is there, from the cache.
	for range 2 {
		cmd := exec.Command("go", "run", "-exec=echo", Module)
		// Outside of this module: its versions are not Helm's.
		cmd.Dir = os.TempDir()
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("building helm: %w\n%s", err, stderr.Bytes())
		}
		path = strings.TrimSpace(string(out))
		if _, err = os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("finding helm: %w", err)
		}
	}
	return "", fmt.Errorf("finding helm: it is not at %s", path)
})

// header begins the rendered manifest.
const header = `# dupip on every node. Rendered from deploy/chart by make manifests: change the chart, not
# this. The image is what make image builds; push it where your nodes find it and put its
# name below.
`

// Namespace is where the rendered manifest puts dupip.
const Namespace = "kube-system"

// leftOut are the lines of a rendering that name Helm as the installer.
var leftOut = regexp.MustCompile(`(?m)^(# Source: .*| *(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*)\n`)

// Manifest renders a chart with its own values for those who do without Helm.
func Manifest(ctx context.Context, chart string) ([]byte, error) {
	text, err := Run(ctx, "", "template", "dupip", chart, "--namespace", Namespace)
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", chart, err)
	}
	text = leftOut.ReplaceAllString(strings.TrimPrefix(text, "---\n"), "")
	return []byte(header + strings.ReplaceAll(text, "\n\n---", "\n---")), nil
}
