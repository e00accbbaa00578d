package pods

import (
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// What real plugins report of a pod is read from containerd and from libcni's cache, which has the subnets. Without a
// runtime the cache has the pods' names, too.
func TestResults(t *testing.T) {
	for title, plugin := range map[string]map[string]any{
		"ptp":    {"type": "ptp", "ipam": cri.HostLocal("10.99.0.0/24", "fd00:99::/64")},
		"bridge": {"type": "bridge", "bridge": "cni7", "isGateway": true, "ipam": cri.HostLocal("10.98.0.0/24", "fd00:98::/64")},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			runtime, err := cri.New(l.Lab, l.Node(""), cri.Options{Plugins: []map[string]any{plugin}})
			l.Do(err)
			c := &containerd{runtime, l}
			l.Do(c.Start(t.Context()))
			p := c.run("pod")
			at := cookie(l, p.Netns)
			for source, opts := range map[string]pods.Options{
				"containerd":     {Socket: c.Socket},
				"libcni's cache": {Socket: c.Socket, Cache: books.CacheDir},
				"no runtime":     {Socket: filepath.Join(t.TempDir(), "none.sock"), Cache: books.CacheDir},
			} {
				t.Run(source, func(t *testing.T) {
					l := &lab.T{Lab: l.Lab, TB: t}
					r := start(l, opts)
					r.named(at, name(p))
					got, _ := r.Pod(at)
					var ips []netip.Addr
					for _, a := range got.Result.Addresses {
						ips = append(ips, a.Addr())
						if lengths := a.Bits() == a.Addr().BitLen(); lengths != (source == "containerd") {
							t.Errorf("subnet %v by %s", a, source)
						}
					}
					if !slices.Equal(ips, p.IPs) || !slices.Equal(got.IPs, p.IPs) {
						t.Errorf("addresses %v, result %v; want %v", got.IPs, ips, p.IPs)
					}
				})
			}
			l.Do(c.RemovePod(t.Context(), p))
			if _, err := books.NewCache(books.CacheDir).Read(p.ID); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after the pod's end the cache has it still: %v", err)
			}
		})
	}
}
