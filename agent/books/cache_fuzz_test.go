package books

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzCache: whatever a file of libcni's cache has, the sandbox is listed once, and what its entry says is bounded and of a pod's address.
func FuzzCache(f *testing.F) {
	was := isPodDevice
	isPodDevice = func(string) bool { return true }
	f.Cleanup(func() { isPodDevice = was })
	f.Add("pods-aaaa-eth0", []byte(`{"kind":"cniCacheV1","ifName":"eth0","networkName":"pods","netns":"/run/netns/a","cniArgs":[["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME","web"]],"result":{"cniVersion":"1.0.0","interfaces":[{"name":"cni0"},{"name":"veth1"},{"name":"eth0","sandbox":"/run/netns/a"}],"ips":[{"address":"10.1.2.3/24"}]}}`))
	f.Add("-aaaa-eth0", []byte(`{"kind":"cniCacheV1","ifName":"eth0","result":{"interfaces":[{"name":"eth0","sandbox":"/n"}],"ips":[{"address":"::ffff:10.0.0.1/96"},{"address":"127.0.0.1/8"}]}}`))
	f.Add("a-net1", []byte(`{"kind":"cniCacheV1","ifName":"net1"}`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		dir := t.TempDir()
		if !filepath.IsLocal(name) || strings.ContainsAny(name, "/\x00") || os.WriteFile(filepath.Join(dir, name), data, 0o600) != nil {
			t.Skip("no name of a file")
		}
		c := NewCache(dir)
		sandboxes, err := c.List()
		if err != nil || len(sandboxes) > 1 || len(sandboxes) > 0 && !strings.HasSuffix(name, sandboxes[0]+"-eth0") {
			t.Fatalf("%q is listed as %q, %v", name, sandboxes, err)
		}
		for _, sandbox := range sandboxes {
			e, err := c.Read(sandbox)
			if (e == nil) == (err == nil) {
				t.Fatalf("%+v, %v", e, err)
			}
			if e == nil {
				continue
			}
			r := e.Result
			if len(r.Addresses) > maxAddresses || len(r.HostEnds) > maxHostEnds || slices.Contains(r.HostEnds, "") {
				t.Errorf("%+v", r)
			}
			for _, a := range r.Addresses {
				if !a.IsValid() || !a.Addr().IsGlobalUnicast() || a.Addr().Is4In6() || a.Addr().Zone() != "" {
					t.Errorf("%s is the address of a pod", a)
				}
			}
		}
	})
}
