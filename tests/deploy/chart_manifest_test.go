package deploy_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/helm"
)

// The manifest for those without Helm is what the chart renders by itself.
func TestManifestIsRendered(t *testing.T) {
	testneeds.Slow(t)
	seen()
	want, err := helm.Manifest(t.Context(), chartDir)
	if err != nil {
		t.Fatal(err)
	}
	sameFile(t, "deploy/dupip.yaml", readChartFile(t, "../../deploy/dupip.yaml"), string(want))
	o, err := decodeChart(string(want))
	if err != nil {
		t.Fatal(err)
	}
	if o.drill != nil {
		t.Error("a drill, which needs Helm")
	}
	checkChart(t, o, "dupip", helm.Namespace)
	// Its first comment has the command for the Secret that the pods wait for.
	_, v, err := o.mount("/etc/dupip/gossip")
	if err != nil {
		t.Fatal(err)
	}
	command := fmt.Sprintf("kubectl -n %s create secret generic %s --from-file=%s=/dev/stdin\n", helm.Namespace, v.Secret.SecretName, v.Secret.Items[0].Key)
	if comment, _, _ := strings.Cut(string(want), "apiVersion:"); !strings.Contains(comment, command) {
		t.Errorf("the first comment lacks %q:\n%s", command, comment)
	}
}

// The chart's alerts and its dashboard are those of everybody.
func TestChartAlerts(t *testing.T) {
	for _, name := range []string{"alerts.yaml", "dashboard.json"} {
		sameFile(t, "deploy/chart/"+name, readChartFile(t, chartDir+"/"+name), readChartFile(t, "../../deploy/"+name))
	}
}

func sameFile(t *testing.T, name, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is out of date: run make manifests and commit (-want +got):\n%s", name, diff)
	}
}

func readChartFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
