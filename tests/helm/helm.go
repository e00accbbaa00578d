// Package helm runs the Helm that the chart is made and tested with, and renders with it
// the manifest that is in the repository. It is built from source by the go command, so it is not among this
// module's dependencies.
//
// It must not know what is in the chart.
package helm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/dupip/dupip/tests/lab"
)

// Version is a pinned version of Helm.
type Version struct{ program func() (string, error) }

// The versions that the chart supports. V4 is built with the libraries of the tests' Kubernetes, in half a minute if that was built
// before and else in two; the others take more.
var (
	V3     = version("helm.sh/helm/v3/cmd/helm@v3.22.0")
	V4     = Version{withKubernetes}
	Newest = version("helm.sh/helm/v4/cmd/helm@v4.3.1")
)

func withKubernetes() (string, error) {
	root, err := lab.TestsRoot()
	if err != nil {
		return "", err
	}
	return lab.BuildCached(filepath.Join(root, "cluster", "kubernetes"), "./helm", lab.Quickly)
}

func version(module string) Version {
	// Outside of this module: its versions are not Helm's.
	return Version{func() (string, error) { return lab.BuildCached(os.TempDir(), module) }}
}

// Path is the path of the program.
func (v Version) Path() (string, error) { return v.program() }

// Run runs [Version.Run] of V4.
func Run(ctx context.Context, stdin string, args ...string) (string, error) {
	return V4.Run(ctx, stdin, args...)
}

// Run runs helm with some arguments, with the text on its standard input, and returns what
// it printed. An error has only the text from standard error. The user's configuration, also that of
// clusters, is not read. Run may be called concurrently.
func (v Version) Run(ctx context.Context, stdin string, args ...string) (string, error) {
	path, err := v.program()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	dir, err := os.MkdirTemp("", "helm-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HELM_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "KUBECACHEDIR", "KUBECONFIG"} {
		cmd.Env = append(cmd.Env, name+"="+filepath.Join(dir, name))
	}
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

// header begins the rendered manifest.
const header = `# dupip on every node. Rendered from deploy/chart by make manifests: change the chart, not
# this. The image is what make image builds; push it where your nodes find it and put its
# name below. The pods wait for a Secret with the key for gossip. This creates it, once:
#
#   head -c 32 /dev/urandom | base64 |
#     kubectl -n kube-system create secret generic dupip-gossip --from-file=gossip.key=/dev/stdin
`

// Namespace is where the rendered manifest puts dupip.
const Namespace = "kube-system"

// leftOut are the lines of a rendering that name Helm as the installer.
var leftOut = regexp.MustCompile(`(?m)^(# Source: .*| *(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*)\n`)

// Manifest renders a chart with its own values, and a Secret that people create, for those who do
// without Helm.
func Manifest(ctx context.Context, chart string) ([]byte, error) {
	text, err := Run(ctx, "", "template", "dupip", chart, "--skip-tests", "--namespace", Namespace, "--set", "gossip.existingSecret=dupip-gossip")
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", chart, err)
	}
	text = leftOut.ReplaceAllString(strings.TrimPrefix(text, "---\n"), "")
	return []byte(header + strings.ReplaceAll(text, "\n\n---", "\n---")), nil
}

// Docs writes the chart's README.md, of README.md.gotmpl and the comments in values.yaml, by helm-docs.
func Docs(ctx context.Context, chart string) error {
	program, err := version("github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2").Path()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, program, "--chart-search-root", chart, "--sort-values-order", "file", "--log-level", "warning").CombinedOutput()
	if err != nil {
		return fmt.Errorf("running helm-docs: %w: %s", err, out)
	}
	return nil
}
