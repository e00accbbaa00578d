package kubelet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/kubelet"
	"github.com/dupip/dupip/tests/lab"
)

// What this package does not understand in a manifest is an error, and so is what an API server would
// reject: nothing is ignored.
func TestManifestIsUnderstood(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	// It does not run: mistakes are found before it is called.
	r, err := cri.New(l.Lab, l.Node(""), cri.Options{Plugins: []map[string]any{ptp}})
	l.Do(err)
	deployed, err := os.ReadFile(kubelet.Manifest)
	l.Do(err)
	const socketVolume = "hostPath:\n            path: /run/dupip\n            type: DirectoryOrCreate"
	for _, tt := range []struct{ name, from, to, want string }{
		{"a kind", "kind: Service\n", "kind: Ingress\n", "v1 Ingress is not understood"},
		{"a field that is none", "hostPID: true", "hostPid: true\n      hostPidd: true", "hostPidd"},
		{"a field twice", "hostPID: true", "hostPID: true\n      hostPID: true", "hostPID"},
		{"a selector of others", "app.kubernetes.io/instance: dupip\n        app.kubernetes.io/part-of", "app.kubernetes.io/instance: other\n        app.kubernetes.io/part-of", "selector"},
		{"another account", "serviceAccountName: dupip", "serviceAccountName: default", "ServiceAccount"},
		{"a token", "      automountServiceAccountToken: false", "      automountServiceAccountToken: true", "token"},
		{"a service with an address", "clusterIP: None", "clusterIP: 10.96.0.7", "headless"},
		{"a field of the set", "  updateStrategy:", "  minReadySeconds: 5\n  updateStrategy:", "minReadySeconds"},
		{"a field of the pod", "hostPID: true", "hostPID: true\n      hostIPC: true", "hostIPC"},
		{"an init container", "      containers:", "      initContainers: [{name: a, image: b}]\n      containers:", "initContainers"},
		{"a second container", "      containers:", "      containers:\n        - name: other", "2 containers"},
		{"a field of the container", "imagePullPolicy:", "tty: true\n          imagePullPolicy:", "tty"},
		{"another image", "image: localhost/dupip:dev", "image: localhost/dupip:old", "dupip:old"},
		{"a pod of its own network", "hostNetwork: true", "hostNetwork: false", "hostNetwork"},
		{"a class", "system-node-critical", "high", `class "high"`},
		{"another kind of nodes", "kubernetes.io/os: linux", "kubernetes.io/os: windows", "no label"},
		{"a variable", "fieldPath: status.hostIP", "fieldPath: status.hostIPs", "status.hostIPs"},
		{"a field of the security context", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: true\n            procMount: Unmasked", "procMount"},
		{"a seccomp profile", "type: RuntimeDefault", "type: Localhost", "seccomp profile Localhost"},
		{"an AppArmor profile", "type: Unconfined", "type: RuntimeDefault", "AppArmor profile RuntimeDefault"},
		{"a resource", "memory: 256Mi", "memory: 256Mi\n              example.com/gpu: 1", "example.com/gpu"},
		{"a probe", "port: metrics\n            failureThreshold", "port: other\n            failureThreshold", "no port other"},
		{"a field of a probe", "periodSeconds: 30", "periodSeconds: 30\n            successThreshold: 2", "successThreshold"},
		{"a mount of nothing", "- name: state\n              mountPath", "- name: stat\n              mountPath", "stat: there is no such volume"},
		{"a field of a mount", "mountPath: /run/dupip", "mountPath: /run/dupip\n              subPath: a", "subPath"},
		{"a path of the host", "path: /var/lib/dupip", "path: /var/lib/other", "/var/lib/other"},
		{"a kind of volume", socketVolume, "emptyDir: {}", "emptyDir"},
		{"a type of hostPath", socketVolume, strings.TrimSuffix(socketVolume, "OrCreate"), "type Directory"},
		{"the gossip key's Secret is not there", "secretName: dupip-gossip", "secretName: other", "no Secret other"},
		{"an object that is not there", socketVolume, "configMap: {name: x}", "no ConfigMap x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := string(deployed)
			if strings.Count(text, tt.from) == 0 {
				t.Fatalf("the manifest has no %q", tt.from)
			}
			path := filepath.Join(t.TempDir(), "dupip.yaml")
			l.Do(os.WriteFile(path, []byte(strings.Replace(text, tt.from, tt.to, 1)), 0o600))
			k, err := kubelet.New(r, path)
			if err == nil {
				_, err = k.Run(t.Context(), "node")
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
