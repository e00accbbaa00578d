package gossip

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/members"
)

// writeKey writes a key file.
func writeKey(t *testing.T, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString([]byte(secret))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs a real member on loopback until the test ends.
func start(t *testing.T, opts members.Options) *Gossip {
	t.Helper()
	opts.Bind, opts.Boot, opts.Epoch = "127.0.0.1", "boot", time.Now().UnixNano()
	g, err := New(Options{Members: opts})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", opts.Node, err)
		}
	})
	return g
}

// TestRealMembers: three members on real sockets find each other, compare leases, pass a probe request on and answer a
// query.
func TestRealMembers(t *testing.T) {
	key := writeKey(t, "0123456789abcdef0123456789abcdef")
	var all []*Gossip
	for n := range 3 {
		opts := members.Options{Node: fmt.Sprintf("n%d", n), Label: "test", KeyFile: key}
		if n > 0 {
			opts.Join = []string{all[0].Status().Address}
		}
		all = append(all, start(t, opts))
	}
	k := detector.Key{Network: "default", IP: netip.MustParseAddr("10.0.0.7")}
	for n, g := range all[:2] {
		g.Lease(cluster.Lease{Key: k, Binding: cluster.Binding{
			Holder:   detector.Holder{ID: detector.HolderID{Node: g.roster.Self().ID, Netns: uint64(n + 1)}, MAC: detector.MAC{2, 0, 0, 0, 0, byte(n + 1)}},
			Evidence: detector.Announced, FirstSeen: time.Now(), LastSeen: time.Now(),
		}})
	}
	timeout := time.After(time.Minute)
	for n, g := range all[:2] {
		select {
		case m := <-g.Messages():
			notice, ok := m.(cluster.ConflictNotice)
			if !ok || notice.Key != k || len(notice.Bindings) != 1 || notice.Bindings[0].Holder.ID.Node != all[1-n].roster.Self().ID {
				t.Errorf("n%d received %+v", n, m)
			}
		case <-timeout:
			t.Fatalf("n%d received no conflict notice; members %+v, status %+v", n, g.Members(), g.Status())
		}
	}
}
