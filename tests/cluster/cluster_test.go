package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/cluster"
	"github.com/dupip/dupip/tests/helm"
)

func commandsOf(t *testing.T, path, heading string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, block[1])
	}
	return blocks
}

func TestX(t *testing.T) {
	c := cluster.New(t, "node1", "node2", "node3")
	h, err := helm.V4.Path()
	c.Do(err)
	c.AddCommand("helm", h)
	blocks := commandsOf(t, "../../README.md", "## Install")
	cmd := exec.Command("bash", "-euc", blocks[0])
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	t.Log(string(out), err)
	archive, err := filepath.Abs("../../bin/dupip-image.tar")
	c.Do(err)
	for _, m := range c.Machines {
		t.Log(m.Run(t.Context(), "ctr", "-n", "k8s.io", "images", "import", archive))
	}
	t.Log(blocks[1])
	text, err := c.Shell(blocks[1])
	t.Log(text)
	t.Log(err)
	text, err = c.Shell("kubectl -n dupip rollout status ds/dupip --timeout=60s; kubectl -n dupip get pods -o wide; kubectl -n dupip exec ds/dupip -- dupip nodes; kubectl -n dupip exec ds/dupip -- dupip status; kubectl -n dupip exec ds/dupip -- dupip doctor; kubectl -n dupip logs ds/dupip")
	t.Log(text)
	t.Log(err)
}
