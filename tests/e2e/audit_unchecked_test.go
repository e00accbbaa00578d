package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// TestAuditNothingChecked: where no book is read, the audit does not say that books and wire agree.
func TestAuditNothingChecked(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	// The folders of a node with k3s, which keeps CNI's configuration in a place of its own.
	root := t.TempDir()
	k3s := filepath.Join(root, "var/lib/rancher/k3s/agent/etc/cni/net.d")
	other, empty := filepath.Join(root, "other"), filepath.Join(root, "empty")
	l.Do(os.MkdirAll(k3s, 0o755), os.MkdirAll(other, 0o755), os.MkdirAll(empty, 0o755))
	l.Do(os.WriteFile(filepath.Join(k3s, "10-flannel.conflist"), []byte(`{"name":"cbr0","plugins":[{"type":"flannel","delegate":{"isDefaultGateway":true}}]}`), 0o600))
	l.Do(os.WriteFile(filepath.Join(other, "10-calico.conflist"), []byte(`{"name":"k8s","plugins":[{"type":"calico","ipam":{"type":"calico-ipam"}}]}`), 0o600))
	usual := filepath.Join(root, "etc/cni/net.d")
	for name, test := range map[string]struct{ dir, why string }{
		// An agent that may not see the root of process 1 does not know that there is no folder.
		"no folder, as with k3s":    {usual, "everything: (" + usual + " does not exist on this node|opening /proc/1/root)"},
		"an empty folder, with k3s": {empty, "everything: no network in " + empty + ` \(--cni-conf-dir\) has its addresses from host-local`},
		"another IPAM":              {other, "everything: no network in " + other + ` \(--cni-conf-dir\) has its addresses from host-local`},
		"switched off":              {"off", `everything: the agent reads no books \(--cni-conf-dir off\)`},
	} {
		why := regexp.MustCompile("[Nn]ot checked: " + test.why)
		t.Run(name, func(t *testing.T) {
			a := l.Agent(l.Node(""), "--cni-conf-dir", test.dir)
			l.Eventually("the books are read", func() error {
				_, read, err := a.Client.Audit(l.Context())
				if err == nil && read.IsZero() && test.dir != "off" {
					err = os.ErrNotExist
				}
				return err
			})
			got := dupip(t, nil, "audit", "--exit-code", "--api-socket", a.Socket)
			flat := strings.Join(strings.Fields(got.stdout), " ")
			if got.code != 4 || strings.Contains(flat, "agree") || !why.MatchString(flat) {
				t.Errorf("audit --exit-code: %+v, want exit 4 and %q", got, test.why)
			}
			for _, args := range [][]string{{"-o", "json"}, {"--ip", "10.0.0.1", "-o", "json"}, {"--network", "cbr0", "-o", "json"}} {
				var doc struct{ Verdict string }
				got := dupip(t, nil, append(args, "audit", "--exit-code", "--api-socket", a.Socket)...)
				if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil || got.code != 4 || doc.Verdict != "not checked" {
					t.Errorf("audit %v: %v, %+v", args, err, got)
				}
			}
			if got := dupip(t, nil, "audit", "--exit-code", "-o", "name", "--api-socket", a.Socket); got.code != 4 || got.stdout != "" || !strings.Contains(got.stderr, "Not checked: everything:") {
				t.Errorf("audit -o name: %+v", got)
			}
			metrics, err := a.Scrape(l.Context())
			if l.Do(err); len(metrics.Find("dupip_audit_findings")) > 0 || len(metrics.Find("dupip_bindings")) == 0 {
				t.Errorf("metrics: %q", metrics.Find("dupip_audit_findings"))
			}
			if got := dupip(t, nil, "status", "--api-socket", a.Socket); !why.MatchString(strings.Join(strings.Fields(got.stdout), " ")) {
				t.Errorf("status: %+v", got)
			}
		})
	}
}
