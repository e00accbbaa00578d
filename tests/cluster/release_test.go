package cluster_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/cosign"
	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/release/releasetest"
)

// TestFirstHour: somebody has the page about releases, and nothing of the sources. Its commands are run as they are written there: those for who
// has the files of a release, and those for who takes image and chart from a registry, into which both were published.
func TestFirstHour(t *testing.T) {
	testneeds.Release(t)
	c := newTestCluster(t, "node1", "node2")
	path, err := cosign.Path()
	c.Do(err)
	c.AddCommand("cosign", path)
	keys, home := releasetest.Keys(t), filepath.Join(c.Dir(), "home")
	c.Do(os.MkdirAll(filepath.Join(home, ".local/bin"), 0o755))
	key, err := os.ReadFile(keys + ".pub")
	c.Do(err, os.WriteFile(filepath.Join(home, "cosign.pub"), key, 0o644))
	now := c.download(t, "0.2.0", keys)
	later := c.download(t, "0.2.1", keys)

	const page = "../../deploy/RELEASE.md"
	verify := scripts(section(t, page, "## Verify a release"))[0]
	for _, dir := range []string{now, later} {
		if out := c.in(dir, "HOME="+home+"\n"+verify); !strings.Contains(out, "Verified OK") || strings.Count(out, ": OK\n") < 10 {
			c.Error("it is not verified")
		}
	}
	s := scripts(section(t, page, "## Install a release"))
	if len(s) != 7 {
		t.Fatalf("the page has %d scripts", len(s))
	}
	toRegistry, node, install, plugin, upgrade, uninstall, clean := s[0], s[1], s[2], s[3], s[4], s[5], s[6]
	host := c.Registry()
	c.in(now, strings.ReplaceAll(toRegistry, "registry.example", host))
	c.onNodes(now, node)
	c.drilled(c.in(now, strings.Replace(install, "--set image.repository=registry.example/dupip ", "", 1)))
	c.in(now, "HOME="+home+"\nPATH=~/.local/bin:$PATH\n"+plugin)
	c.AddCommand("kubectl-dupip", filepath.Join(home, ".local/bin/kubectl-dupip"))
	c.onNodes(later, strings.ReplaceAll(node, "0.2.0", "0.2.1"))
	c.in(later, upgrade)
	c.runsVersion("0.2.1")
	c.removed(now, uninstall, clean)
	// The nodes have nothing of what they are to pull, by none of its names.
	c.onNodes(now, `digests=$(ctr -n k8s.io images ls | awk '$1 ~ /^localhost.dupip:/ {print $3}')
ctr -n k8s.io images ls | grep -F "$digests" | awk '{print $1}' | xargs ctr -n k8s.io images rm --sync`)

	s = scripts(section(t, page, "## From the registry"))
	if len(s) != 4 {
		t.Fatalf("the page has %d scripts", len(s))
	}
	verify, install, upgrade, rollback := s[0], s[1], s[2], s[3]
	c.published(now, "0.2.0", host, keys)
	c.published(later, "0.2.1", host, keys)
	if copied, published := c.digest(host+"/dupip:0.2.0"), c.digest(host+"/dupip/dupip:0.2.0"); copied != published {
		c.Errorf("skopeo makes %q of the image, and make publish %q", copied, published)
	}
	c.unsigned(t, verify+install, host)
	paste := func(script string) string {
		return c.run("HOME=" + home + "\n" + strings.ReplaceAll(script, "ghcr.io", host))
	}
	c.drilled(paste(verify + install))
	c.runsVersion("0.2.0")
	image := c.run("kubectl -n dupip get ds dupip -o jsonpath='{.spec.template.spec.containers[0].image}'")
	if want := host + "/dupip/dupip@" + c.digest(host+"/dupip/dupip:0.2.0"); image != want {
		c.Errorf("the image is %s, want %s", image, want)
	}

	c.shop()
	ip := c.duplicate("node1", "old", "new", pod("new", "node1"))
	before := c.ownInState("node1", ip, "confirmed")
	c.eventually("the Event", func() error {
		_, err := c.dupipEvents("old", "DuplicateIP")
		return err
	})
	c.run("kubectl -n shop describe pod old | sed -n '/^Events/,$p'")
	c.pluginSays("conflicts", ip.String())
	c.in(now, "kubectl dupip capture "+ip.String()+" -o capture.tar.gz; tar -tzf capture.tar.gz")

	paste(strings.ReplaceAll(verify, "0.2.0", "0.2.1") + upgrade)
	c.runsVersion("0.2.1")
	c.same("node1", before)
	paste(rollback)
	c.runsVersion("0.2.0")
	c.same("node1", before)

	ask := cli(func(command string) (string, error) { return c.Shell("kubectl dupip " + command) })
	c.end(ip, c.Ordered(ask, ip).Judgement.Steps, lab.Failed, "old")

	c.removed(now, uninstall, clean)
	for name := range c.Machines {
		if n := c.programs(name); n > 0 {
			c.Error(fmt.Errorf("%d programs are left on %s", n, name))
		}
	}
}

// drilled: helm test has said that the drill has succeeded.
func (c *testCluster) drilled(out string) {
	c.Helper()
	if !strings.Contains(out, "the drill has succeeded") {
		c.Error("the drill does not say that it has succeeded")
	}
}

// published publishes a release into a registry. Nothing is made on GitHub.
func (c *testCluster) published(dir, version, host, keys string) {
	c.Helper()
	// Where the cluster is, Go has no module proxy but what was fetched before.
	c.run(fmt.Sprintf(`export GOSUMDB=off GOPROXY=file://$(go env GOMODCACHE)/cache/download COSIGN_PASSWORD='%s'
gh=$(mktemp -d)
ln -s /bin/true $gh/gh
PATH=$gh:$PATH make publish VERSION=%s KEY=%s.key REGISTRY=%s/dupip RELEASE=%s
rm -r $gh`, releasetest.Password, version, keys, host, dir))
}

// digest is what a tag in a registry leads to.
func (c *testCluster) digest(ref string) string {
	c.Helper()
	return strings.TrimSpace(c.run("skopeo inspect --format '{{.Digest}}' docker://" + ref))
}

// unsigned: the scripts install nothing that another key has signed.
func (c *testCluster) unsigned(t *testing.T, script, host string) {
	c.Helper()
	other := t.TempDir()
	c.Do(os.Rename(releasetest.Keys(t)+".pub", filepath.Join(other, "cosign.pub")))
	out, err := c.Shell("HOME=" + other + "\nkubectl() { :; }\n" + strings.ReplaceAll(script, "ghcr.io", host))
	if c.Logf("%s%v", out, err); err == nil || !strings.Contains(err.Error(), "chart: parameter null or not set") {
		c.Error("it installs what another key has signed")
	}
}

// runsVersion waits until all run a version.
func (c *testCluster) runsVersion(version string) {
	c.Helper()
	c.run("kubectl -n dupip rollout status ds/dupip --timeout=$PATIENCE; kubectl -n dupip rollout status sts/dupip-reporter --timeout=$PATIENCE")
	c.members()
	c.pluginSays("nodes -o json", fmt.Sprintf(`"version": %q`, version))
}

// removed runs the scripts that remove all, and waits for the end of the namespace.
func (c *testCluster) removed(dir, uninstall, clean string) {
	c.Helper()
	c.in(dir, uninstall)
	c.onNodes(dir, clean)
	c.eventually("the end of the namespace", func() error {
		if c.Get(new(corev1.Namespace), "api/v1/namespaces/dupip") == nil {
			return errors.New("it is there")
		}
		return nil
	})
}

// download makes a release and returns a folder with its files.
func (c *testCluster) download(t *testing.T, version, keys string) string {
	c.Helper()
	dir := filepath.Join(c.Dir(), version)
	c.Do(os.CopyFS(dir, os.DirFS(releasetest.Make(t, version, version, keys+".key"))))
	return dir
}

// in runs a script of the administrator in a folder.
func (c *testCluster) in(dir, script string) string {
	c.Helper()
	return c.run(fmt.Sprintf("cd %s\n%s", dir, script))
}

// onNodes runs a script in a folder on each machine.
func (c *testCluster) onNodes(dir, script string) {
	c.Helper()
	for name, m := range c.Machines {
		out, err := m.Run(c.Context(), "sh", "-euc", "cd "+dir+"\n"+script)
		c.Do(err)
		c.Logf("%s# %s%s", name, script, out)
	}
}

// pluginSays waits until kubectl dupip prints something, and returns what it prints.
func (c *testCluster) pluginSays(command, want string) (out string) {
	c.Helper()
	c.eventually("kubectl dupip "+command, func() (err error) {
		out, err = c.Shell("kubectl dupip " + command)
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("no %q in\n%s", want, out)
		}
		return err
	})
	c.Logf("$ kubectl dupip %s\n%s", command, out)
	return out
}
