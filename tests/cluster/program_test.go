package cluster_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/cluster"
)

// TestVersion: the programs are of the version that the charts are told. It builds them, which takes minutes at first.
func TestVersion(t *testing.T) {
	testneeds.Slow(t)
	path, err := cluster.Program()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "kubectl", "version", "--client").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Client Version: "+cluster.Version+"\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
