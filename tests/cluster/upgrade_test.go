package cluster_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// firstVersion is the last commit of 0.1.
const firstVersion = "7fe02d0ef0a3362d2dcff7e57c470324d2f36622"

// TestUpgradeFromFirstVersion: what the page about upgrades says of 0.1 and 0.2, and back.
func TestUpgradeFromFirstVersion(t *testing.T) {
	testneeds.Release(t)
	c := newTestCluster(t)
	// All have one range: what one node gives out, the others give out, too.
	for _, name := range []string{"node1", "node2", "node3"} {
		c.Add(name, netip.MustParsePrefix("10.245.77.0/24"))
	}
	c.Ready("node1", "node2", "node3")
	old := c.checkOut()
	c.buildImage(old, "0.1.0")
	c.buildImage("../..", "0.2.0")
	// Its last command does not wait until the pods run.
	commands, _, _ := strings.Cut(scripts(section(t, filepath.Join(old, "README.md"), "## Install on Kubernetes"))[1], "kubectl -n dupip exec")
	c.run("cd " + old + "\n" + commands + "\nkubectl -n dupip rollout status ds/dupip --timeout=$PATIENCE")
	c.members()

	c.shop()
	c.shared("10.245.77.20", "node2", "node3")
	first := c.ownInState("node2", netip.MustParseAddr("10.245.77.20"), "confirmed")

	command := scripts(section(t, "../../deploy/UPGRADING.md", "## From 0.1 to 0.2"))[0]
	c.run(strings.TrimSpace(command) + " --set updateStrategy.type=OnDelete")
	c.replaceAgent("node1")
	c.eventually("the status of the new agent", func() error {
		text, err := c.dupip("node1", "status")
		if err == nil && !strings.Contains(text, "0.1") {
			err = fmt.Errorf("it does not name an agent of 0.1:\n%s", text)
		}
		return err
	})
	// The two halves: 10.245.77.21 has holders in both, 22 in the old one, and 23 twice on a new node.
	c.shared("10.245.77.21", "node1", "node2")
	c.shared("10.245.77.22", "node2", "node3")
	c.shared("10.245.77.23", "node1", "node1")
	c.inState("node2", netip.MustParseAddr("10.245.77.22"), "confirmed")
	c.inState("node1", netip.MustParseAddr("10.245.77.23"), "confirmed")
	for _, name := range []string{"node1", "node2"} {
		all, err := c.conflicts(name)
		c.Do(err)
		if slices.ContainsFunc(all, func(o lab.Conflict) bool { return o.IP == netip.MustParseAddr("10.245.77.21") }) {
			c.Error(fmt.Errorf("%s knows of the other half, and the page says that it does not: %+v", name, all))
		}
	}

	c.replaceAgent("node2")
	c.replaceAgent("node3")
	c.members()
	c.inState("node1", netip.MustParseAddr("10.245.77.21"), "confirmed")
	c.same("node2", first)

	// Back again: the old agents begin without conflicts, and find them.
	c.run("helm -n dupip rollback dupip 1\nkubectl -n dupip rollout status ds/dupip --timeout=$PATIENCE")
	for _, ip := range []string{"10.245.77.20", "10.245.77.21", "10.245.77.22"} {
		c.inState("node2", netip.MustParseAddr(ip), "confirmed")
	}
	c.inState("node1", netip.MustParseAddr("10.245.77.23"), "confirmed")
}

// checkOut makes a copy of the first version, and returns its folder.
func (c *testCluster) checkOut() string {
	c.Helper()
	// Git may not trust the owner of the repository.
	git := func(args ...string) ([]byte, error) {
		return exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...).CombinedOutput()
	}
	if out, err := git("cat-file", "-e", firstVersion); err != nil {
		c.Fatal(fmt.Errorf("commit %s is not there: fetch the full history of the repository: %w\n%s", firstVersion, err, out))
	}
	dir := filepath.Join(c.Dir(), "dupip")
	for _, args := range [][]string{{"clone", "--quiet", "../..", dir}, {"-C", dir, "checkout", "--quiet", firstVersion}} {
		out, err := git(args...)
		if err != nil {
			c.Fatal(fmt.Errorf("git %s: %w\n%s", args[0], err, out))
		}
	}
	return dir
}

// buildImage imports the program of the sources in a folder on all machines, without what else the image of a version has.
func (c *testCluster) buildImage(dir, version string) {
	c.Helper()
	path, archive := filepath.Join(c.Dir(), "dupip-"+version), filepath.Join(c.Dir(), version+".tar")
	c.Do(lab.Build(dir, path, "./cmd/dupip", "-ldflags", "-s -w -X main.version="+version))
	program, err := os.ReadFile(path)
	c.Do(err)
	c.Do(cri.WriteImage(archive, "registry.example/dupip:"+version, "/usr/bin/dupip", program, "agent"))
	c.importArchive(archive)
}

// shared makes pods with one address on two machines.
func (c *testCluster) shared(address string, machines ...string) {
	c.Helper()
	ip := netip.MustParseAddr(address)
	for n, machine := range machines {
		name := fmt.Sprintf("pod-%d-%d", ip.As4()[3], n)
		if n > 0 && machines[0] == machine {
			c.free(machine, ip)
		}
		c.next(machine, ip)
		c.Apply(pod(name, machine))
		if got := c.running(name)[0]; got != ip {
			c.Fatal(fmt.Errorf("%s has %v instead of %v", name, got, ip))
		}
	}
}

// replaceAgent deletes the agent's pod on a machine, and waits for the next one.
func (c *testCluster) replaceAgent(machine string) {
	c.Helper()
	c.replace("-l app.kubernetes.io/name=dupip --field-selector spec.nodeName=" + machine)
	c.eventually("the next agent on "+machine, func() error {
		_, err := c.dupip(machine, "status")
		return err
	})
}
