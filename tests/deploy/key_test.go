package deploy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/helm"
)

// helmVersions are those that the chart supports. Others than the first, which take minutes to build, are tested for releases.
var helmVersions = func() map[string]helm.Version {
	versions := map[string]helm.Version{"Helm 4": helm.V4}
	if testneeds.IsRelease() {
		versions["Helm 3"] = helm.V3
		versions["the newest Helm"] = helm.Newest
	}
	return versions
}()

// release is a release "dupip" of the chart in a namespace of a cluster.
type release struct {
	*testing.T
	helm      helm.Version
	server    *apiServer
	namespace string
}

// run runs a command of Helm on the release.
func (r *release) run(args ...string) string {
	r.Helper()
	out, err := r.helm.Run(r.Context(), "", append(args, "--namespace", r.namespace, "--kube-apiserver", r.server.URL)...)
	if err != nil {
		r.Fatalf("helm %v: %v\n%s", args, err, out)
	}
	return out
}

// apply installs or upgrades the release.
func (r *release) apply(command string, values ...string) {
	r.Helper()
	args := []string{command, "dupip", chartDir, "--disable-openapi-validation"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	r.run(args...)
}

// keys returns the key file that the agents of the release read.
func (r *release) keys() string {
	r.Helper()
	o, err := decodeChart(r.run("get", "manifest", "dupip"))
	if err != nil {
		r.Fatal(err)
	}
	path, _ := o.setting("--gossip-key-file")
	_, volume, err := o.mount(path)
	if err != nil || volume.Secret == nil {
		r.Fatalf("%q is not of a Secret: %v", path, err)
	}
	var secret corev1.Secret
	r.server.object(r.T, r.secret(volume.Secret.SecretName), &secret)
	return string(secret.Data[volume.Secret.Items[0].Key])
}

// secret returns the path of a Secret.
func (r *release) secret(name string) string {
	return "/api/v1/namespaces/" + r.namespace + "/secrets/" + name
}

// The first install makes a random key. Whatever Helm does with the release later, the key stays.
func TestGossipKeyIsKept(t *testing.T) {
	testneeds.Slow(t)
	seen()
	for name, version := range helmVersions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(t, "dupip", "other")
			r := &release{t, version, server, "dupip"}
			r.apply("install")
			key := r.keys()
			path := filepath.Join(t.TempDir(), "gossip.key")
			if err := os.WriteFile(path, []byte(key), 0o400); err != nil {
				t.Fatal(err)
			}
			if n, err := transport.CountKeys(path); n != 1 || err != nil || len(key) != 44 {
				t.Errorf("the agent reads %d keys in %q (%v), want one of 32 bytes", n, key, err)
			}
			other := &release{t, version, server, "other"}
			other.apply("install")
			if other.keys() == key {
				t.Error("two releases have one key")
			}

			kept := func(after string) {
				t.Helper()
				if now := r.keys(); now != key {
					t.Errorf("after %s the key is %q, before it was %q", after, now, key)
				}
			}
			r.apply("upgrade", "cluster=prod", "commonLabels.team=net")
			kept("an upgrade")
			var secret corev1.Secret
			if server.object(t, r.secret("dupip-gossip"), &secret); secret.Labels["team"] != "net" {
				t.Errorf("the Secret lacks the label of all objects: %v", secret.Labels)
			}
			r.run("rollback", "dupip", "1")
			kept("a rollback")
			r.apply("upgrade", "gossip.existingSecret=dupip-gossip")
			kept("the Secret was named")
			r.apply("upgrade", "gossip.existingSecret=")
			kept("the Secret was not named any more")
			r.run("uninstall", "dupip")
			r.apply("install")
			kept("an uninstall and an install")

			key += "\n" + key[1:] + key[:1]
			server.change(r.secret("dupip-gossip"), map[string]any{"data": map[string]any{"gossip.key": []byte(key)}})
			r.apply("upgrade", "cluster=prod")
			kept("a person added a key, and an upgrade")
		})
	}
}

// Helm makes no key where it cannot see whether there is one.
func TestGossipKeyNeedsCluster(t *testing.T) {
	testneeds.Slow(t)
	seen()
	const want = "cannot read the cluster: create a Secret and set gossip.existingSecret"
	for name, version := range helmVersions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(t)
			for command, args := range map[string][]string{
				"template": {"--kube-version", "1.30"},
				"install":  {"--dry-run=client", "--disable-openapi-validation", "--kube-apiserver", server.URL},
			} {
				args = append([]string{command, "dupip", chartDir}, args...)
				if out, err := version.Run(t.Context(), "", args...); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("helm %s: %v, want %q\n%s", command, err, want, out)
				}
				out, err := version.Run(t.Context(), "", append(args, "--set", "gossip.existingSecret=mine")...)
				if err != nil || strings.Contains(out, "kind: Secret\n") {
					t.Errorf("helm %s with a Secret: %v\n%s", command, err, out)
				}
			}
		})
	}
}
