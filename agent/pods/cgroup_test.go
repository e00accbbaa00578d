package pods

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/detector"
)

var (
	first  = strings.Repeat("1234567890abcdef", 4)
	second = strings.Repeat("fedcba0987654321", 4)
	third  = strings.Repeat("0011223344556677", 4)
)

func TestContainerOf(t *testing.T) {
	const alloc = "1b8f3c5a-7d7e-4a3f-9f0a-0123456789ab"
	for path, want := range map[string]container{
		"/system.slice/docker-" + first + ".scope":            {engine: "docker", id: first},
		"/docker/" + first:                                    {engine: "docker", id: first},
		"/docker/" + first + "/docker/" + second:              {engine: "docker", id: first}, // Docker in Docker: its own name does not count
		"/docker/" + first + "/kubelet/kubepods/burstable":    {engine: "docker", id: first}, // kind
		"/../../docker-" + first + ".scope":                   {engine: "docker", id: first}, // as an agent in a container sees it
		"/ci/" + first:                                        {id: first},
		"/../" + first:                                        {id: first},
		"/machine.slice/libpod-" + first + ".scope/container": {engine: "podman", id: first},
		"/libpod_parent/libpod-" + first:                      {engine: "podman", id: first},
		"/system.slice/nerdctl-" + first + ".scope":           {engine: "nerdctl", id: first},
		"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + first + ".scope/container":       {engine: "rootless podman", id: first},
		"/user.slice/user-1000.slice/user@1000.service/app.slice/docker.service/docker/" + first:              {engine: "rootless docker", id: first},
		"/../../user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + first + ".scope/container": {engine: "rootless podman", id: first},
		"/user.slice/user-1000.slice/user@1000.service/mine/" + first:                                         {},                            // root's may have that id
		"/system.slice/web.service/libpod-payload-" + first:                                                   {engine: "podman", id: first}, // Quadlet
		"/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator":                                     {},
		"/../../system.slice/web.service":                                                                     {engine: unit, name: "web.service"},
		"/user.slice/user-0.slice/session-3.scope":                                                            {},
		"/nomad.slice/share.slice/" + alloc + ".web.scope":                                                    {engine: "nomad", id: alloc, name: "web"},
		"/nomad/" + alloc + ".web":                                                                            {engine: "nomad", id: alloc, name: "web"},
		"/lxc.payload.web/init.scope":                                                                         {engine: "lxc", name: "web"},
		"/lxc.payload.web/system.slice/docker-" + first + ".scope":                                            {engine: "lxc", name: "web"},
		"/lxc/web":         {engine: "lxc", name: "web"},
		"/lxc.payload/web": {engine: "lxc", name: "web"},
		"/machine.slice/machine-my\\x2dweb.scope/payload":   {engine: "nspawn", name: "my-web"},
		"/machine.slice/systemd-nspawn@web.service/payload": {engine: "nspawn", name: "web"},
		"/system.slice/web.service":                         {engine: unit, name: "web.service"},
		"/system.slice/system-web.slice/web@1.service":      {engine: unit, name: "web@1.service"},
		"/web.service":                      {},
		"/":                                 {},
		"/init.scope":                       {},
		"/docker/" + first[1:]:              {},
		"/docker/" + first + "0":            {},
		"/docker/" + strings.ToUpper(first): {},
	} {
		if got, isPod := containerOf(path); got != want || isPod {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
}

func TestCgroupsOfPods(t *testing.T) {
	for _, path := range []string{
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-containerd-" + first + ".scope",
		"/kubepods/burstable/pod1b8f3c5a-7d7e-4a3f-9f0a-0123456789ab/" + first,
		"/../pod1b8f3c5a-7d7e-4a3f-9f0a-0123456789ab/" + first,
		"/../cri-containerd-" + first + ".scope",
		"/system.slice/crio-" + first + ".scope",
		"/kubelet.slice/kubelet-kubepods.slice/docker-" + first + ".scope",
	} {
		if got, isPod := containerOf(path); got != (container{}) || !isPod {
			t.Errorf("%s: %+v, a pod: %t", path, got, isPod)
		}
	}
}

// What an engine lists goes before what a cgroup says; a container that no engine lists, and whose cgroup does not say its engine, may be
// a pod.
func TestIdentify(t *testing.T) {
	address := netip.MustParsePrefix("10.0.0.1/32")
	lists := map[string]map[string]running{
		"docker": {first: {name: "web", given: []netip.Prefix{address}}, second: {name: "sidecar", in: first}, third: {name: "k8s_POD_web", isPod: true}},
		"podman": {second: {name: "db"}},
	}
	web := Change{Pod: detector.Pod{Engine: "docker", Name: "web", UID: first}, Result: &books.Result{Addresses: []netip.Prefix{address}, Whole: true}}
	for name, test := range map[string]struct {
		of   container
		want Change
	}{
		"its name":                      {container{engine: "docker", id: first}, web},
		"the engine that lists it":      {container{id: first}, web},
		"the owner of the netns":        {container{engine: "docker", id: second}, web},
		"the same id of another engine": {container{engine: "podman", id: second}, Change{Pod: detector.Pod{Engine: "podman", Name: "db", UID: second}}},
		"not of that engine":            {container{engine: "podman", id: first}, Change{Pod: detector.Pod{Engine: "podman", Name: first[:12], UID: first}}},
		"a user's":                      {container{engine: "rootless docker", id: first}, Change{Pod: detector.Pod{Engine: "rootless docker", Name: first[:12], UID: first}}},
		"a pod of cri-dockerd":          {container{engine: "docker", id: third}, Change{}},
		"nobody lists it":               {container{id: strings.Repeat("0", 64)}, Change{}},
		"a name without an id":          {container{engine: "lxc", name: "web"}, Change{Pod: detector.Pod{Engine: "lxc", Name: "web"}}},
		"a name that no terminal obeys": {container{engine: "lxc", name: "w\x1b[2Jeb"}, Change{}},
	} {
		got, ok := identify(test.of, lists)
		if !ok {
			got = Change{}
		}
		if diff := cmp.Diff(test.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" || ok != (test.want.Pod.Engine != "") {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
