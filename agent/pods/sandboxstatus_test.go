package pods

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/detector"
)

// A path below /var/run is found where only /run is there, and the process comes last.
func TestPaths(t *testing.T) {
	t.Parallel()
	const process, noProcess = "/proc/1073741824/ns/net", 1 << 30
	for _, test := range []struct {
		path  string
		pid   int
		ready bool
		want  []string
	}{
		{"", 0, true, nil},
		{"/run/netns/a", 0, true, []string{"/run/netns/a"}},
		{"/var/run/netns/a", 0, true, []string{"/var/run/netns/a", "/run/netns/a"}},
		{"/var/running/a", 0, true, []string{"/var/running/a"}},
		{"/proc/4711/ns/net", 0, true, []string{"/proc/4711/ns/net"}},
		{"/data/var/run/netns/a", 0, true, []string{"/data/var/run/netns/a"}},
		{"/var/run/netns/a", noProcess, true, []string{"/var/run/netns/a", "/run/netns/a", process}},
		{"/run/netns/a", noProcess, false, []string{"/run/netns/a"}},
		{"", noProcess, true, []string{process}},
		{"", -1, true, nil},
	} {
		s := sandboxStatus{path: test.path, pid: test.pid}
		if diff := cmp.Diff(test.want, s.paths(test.ready)); diff != "" {
			t.Errorf("%q, process %d (-want +got):\n%s", test.path, test.pid, diff)
		}
	}
	for _, nowhere := range []sandboxStatus{{}, {path: "/nowhere"}, {path: "/nowhere", pid: noProcess}} {
		if cookie, err := nowhere.cookie(true); err == nil || cookie != 0 {
			t.Errorf("%+v: cookie %d and no error", nowhere, cookie)
		}
	}
}

// What is read from a status.
func TestParse(t *testing.T) {
	t.Parallel()
	metadata := &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: "web", Uid: "u"}
	pod := detector.Pod{Namespace: "shop", Name: "web", UID: "u"}
	at := func(path string) string {
		return `{"pid":7,"runtimeSpec":{"linux":{"namespaces":[{"type":"pid","path":"/x"},{"type":"network","path":"` + path + `"}]}}}`
	}
	for _, test := range []struct {
		name     string
		metadata *runtimeapi.PodSandboxMetadata
		network  runtimeapi.NamespaceMode
		info     string
		want     sandboxStatus
	}{
		{"complete", metadata, 0, at("/run/netns/x"), sandboxStatus{pod: pod, path: "/run/netns/x", pid: 7}},
		{"no netns of its own", metadata, runtimeapi.NamespaceMode_NODE, `{"pid":7}`, sandboxStatus{pod: pod, hostNetwork: true, pid: 7}},
		{
			"containerd 2, the process did not start", metadata, 0,
			`{"pid":0,"runtimeSpec":null,"sandboxMetadata":{"Version":"v1","Metadata":{"NetNSPath":"/var/run/netns/x"}}}`,
			sandboxStatus{pod: pod, path: "/var/run/netns/x"},
		},
		{
			"both are there", metadata, 0, strings.TrimSuffix(at("/run/netns/x"), "}") + `,"sandboxMetadata":{"Metadata":{"NetNSPath":"/y"}}}`,
			sandboxStatus{pod: pod, path: "/run/netns/x", pid: 7},
		},
		{"a relative path in metadata", metadata, 0, `{"sandboxMetadata":{"Metadata":{"NetNSPath":"run/x"}}}`, sandboxStatus{pod: pod}},
		{"metadata of another kind", metadata, 0, `{"pid":7,"sandboxMetadata":[]}`, sandboxStatus{pod: pod, pid: 7}},
		{"a relative path", metadata, 0, at("run/x"), sandboxStatus{pod: pod, pid: 7}},
		{"a path that is too long", metadata, 0, at("/" + strings.Repeat("x", 5000)), sandboxStatus{pod: pod, pid: 7}},
		{"a zero byte", metadata, 0, at(`/x\u0000y`), sandboxStatus{pod: pod, pid: 7}},
		{"no JSON", metadata, 0, `[`, sandboxStatus{pod: pod}},
		{"nothing", nil, 0, "", sandboxStatus{}},
		{"a name for terminals", &runtimeapi.PodSandboxMetadata{Name: "\x1b[31m"}, 0, "", sandboxStatus{}},
		{"such a namespace", &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "a b"}, 0, "", sandboxStatus{}},
		{"such a UID", &runtimeapi.PodSandboxMetadata{Name: "web", Uid: "\n"}, 0, "", sandboxStatus{pod: detector.Pod{Name: "web"}}},
	} {
		got := parse(&runtimeapi.PodSandboxStatusResponse{
			Status: &runtimeapi.PodSandboxStatus{
				Metadata: test.metadata,
				Linux:    &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: test.network}}},
			},
			Info: map[string]string{"info": test.info},
		})
		test.want.info = []byte(test.info)
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(sandboxStatus{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// The virtual machine of a pod is that of KubeVirt's labels.
func TestVirtualMachine(t *testing.T) {
	t.Parallel()
	const uid, name, domain = "kubevirt.io/created-by", "vm.kubevirt.io/name", "kubevirt.io/domain"
	for _, test := range []struct {
		labels map[string]string
		want   detector.VM
	}{
		{nil, detector.VM{}},
		{map[string]string{uid: "u", name: "db", domain: "d"}, detector.VM{UID: "u", Name: "db"}},
		{map[string]string{uid: "u", domain: "d"}, detector.VM{UID: "u", Name: "d"}},
		{map[string]string{uid: "u", name: "a\x1bb", domain: "d"}, detector.VM{UID: "u", Name: "d"}},
		{map[string]string{uid: "u"}, detector.VM{UID: "u"}},
		{map[string]string{name: "db"}, detector.VM{}},
		{map[string]string{uid: "", name: "db"}, detector.VM{}},
		{map[string]string{uid: "a b", name: "db"}, detector.VM{}},
		{map[string]string{uid: strings.Repeat("u", 300)}, detector.VM{}},
	} {
		got := parse(&runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Labels: test.labels}})
		if got.vm != test.want {
			t.Errorf("%v: %+v, want %+v", test.labels, got.vm, test.want)
		}
	}
}
