package cluster_test

import (
	"errors"
	"fmt"
	"io/fs"
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

// TestFirstHour: somebody has the files of a release, the page about releases, and nothing of the sources. Its commands are run as they are
// written there: first those that take image and chart from a registry, into which both were published, then those for the files.
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
	host := c.published(now, keys)
	if out := c.fromRegistry("HOME="+home+"\n"+scripts(section(t, page, "## From the registry"))[0], host); !strings.Contains(out, "the drill has succeeded") {
		c.Error("the drill does not say that it has succeeded")
	}
	if image := c.run("kubectl -n dupip get ds dupip -o jsonpath='{.spec.template.spec.containers[0].image}'"); !strings.HasPrefix(image, host+"/dupip/dupip@sha256:") {
		c.Error("the image is " + image)
	}
	s := scripts(section(t, page, "## Install a release"))
	if len(s) != 7 {
		t.Fatalf("the page has %d scripts", len(s))
	}
	registry, node, install, plugin, upgrade, uninstall, clean := s[0], s[1], s[2], s[3], s[4], s[5], s[6]
	c.in(now, "HOME="+home+"\nPATH=~/.local/bin:$PATH\n"+plugin)
	c.AddCommand("kubectl-dupip", filepath.Join(home, ".local/bin/kubectl-dupip"))

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

	c.onNodes(later, strings.ReplaceAll(node, "0.2.0", "0.2.1"))
	c.in(later, strings.Replace(upgrade, "--wait", "--set image.repository=localhost/dupip --wait", 1)) // the nodes have it, and the registry has not
	c.runsVersion("0.2.1", before)
	c.run("helm -n dupip rollback dupip --wait")
	c.runsVersion("0.2.0", before)

	ask := cli(func(command string) (string, error) { return c.Shell("kubectl dupip " + command) })
	c.end(ip, c.Ordered(ask, ip).Judgement.Steps, lab.Failed, "old")

	c.removed(now, uninstall, clean)

	// By the files, the version that the nodes have not got from the registry: kubelet asks the registry of an image's name again for one that
	// it has pulled from another.
	c.copied(now, registry)
	install = strings.NewReplacer("--set image.repository=registry.example/dupip ", "", "0.2.0", "0.2.1").Replace(install)
	if out := c.in(later, install); !strings.Contains(out, "the drill has succeeded") {
		c.Error("the drill does not say that it has succeeded")
	}
	c.removed(now, uninstall, clean)
	for name := range c.Machines {
		if n := c.programs(name); n > 0 {
			c.Error(fmt.Errorf("%d programs are left on %s", n, name))
		}
	}
}

// published publishes a release into a registry of the cluster's own, and returns its address. Nothing is made on GitHub.
func (c *testCluster) published(dir, keys string) string {
	c.Helper()
	host, gh := c.Registry(), filepath.Join(c.Dir(), "gh")
	c.Do(os.WriteFile(gh, []byte("#!/bin/sh\necho \"$@\" >\"$0.said\"\n"), 0o755))
	c.AddCommand("gh", gh)
	// Where the cluster is, Go has no module proxy but what was fetched before.
	c.run(fmt.Sprintf("export GOSUMDB=off GOPROXY=file://$(go env GOMODCACHE)/cache/download\nCOSIGN_PASSWORD='%s' make publish VERSION=0.2.0 KEY=%s.key REGISTRY=%s/dupip RELEASE=%s", releasetest.Password, keys, host, dir))
	if said, err := os.ReadFile(filepath.Join(c.Dir(), "bin/gh.said")); err != nil || !strings.HasPrefix(string(said), "release create v0.2.0 --verify-tag ") || !strings.Contains(string(said), "/SHA256SUMS.sig ") {
		c.Errorf("the release is made by %q, %v", said, err)
	}
	return host
}

// fromRegistry runs a script with the cluster's registry, which has no TLS, in place of the one that it names.
func (c *testCluster) fromRegistry(script, host string) string {
	c.Helper()
	return c.run(`cosign() { command cosign "$@" --allow-http-registry; }
skopeo() { command skopeo "$@" --tls-verify=false; }
helm() { case "$3" in install) command helm "$@" --plain-http;; *) command helm "$@";; esac; }
` + strings.ReplaceAll(script, "ghcr.io/dupip", host+"/dupip"))
}

// runsVersion waits until all run a version, in which an open conflict is the same.
func (c *testCluster) runsVersion(version string, before lab.Conflict) {
	c.Helper()
	c.run("kubectl -n dupip rollout status ds/dupip --timeout=$PATIENCE; kubectl -n dupip rollout status sts/dupip-reporter --timeout=$PATIENCE")
	c.members()
	c.same("node1", before)
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

// copied runs the script that copies the image to a registry, with a folder instead of that.
func (c *testCluster) copied(dir, script string) {
	c.Helper()
	before, registry, _ := strings.Cut(strings.TrimSpace(script), "docker://")
	to := filepath.Join(c.Dir(), "registry")
	c.Do(os.Mkdir(to, 0o755))
	c.in(dir, before+"dir:"+to+" # "+registry)
	files, err := fs.Glob(os.DirFS(to), "*")
	c.Do(err)
	if len(files) < 5 {
		c.Error(fmt.Errorf("it has copied %q: images for two architectures, with layers and configurations, are more", files))
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
