package members

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dupip/dupip/gossip/transport"
)

// FuzzKnown: whatever members.json has, addresses of nodes are read, a bounded number of them, and the same after they were written.
func FuzzKnown(f *testing.F) {
	f.Add([]byte(`{"members":["10.0.0.1:1","[fd00::1]:7951","[::ffff:10.0.0.1]:1","[fe80::1%eth0]:1","224.0.0.1:1"]}`))
	f.Add([]byte(`{"members":null,"more":1}`))
	f.Add([]byte(`{"Members":[""]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "members.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		p := openKnown(path)
		if len(p.last) > maxKnown || len(data) > maxKnownBytes && p.err == nil {
			t.Errorf("%d addresses, %v", len(p.last), p.err)
		}
		for _, at := range p.last {
			if transport.CheckAddress(at) != nil || at.Addr().Is4In6() {
				t.Errorf("%s is no address of a node", at)
			}
		}
		written, err := json.Marshal(map[string]any{"members": p.last}) // as write does it, which waits for the disk
		if err != nil || os.WriteFile(path, written, 0o600) != nil {
			t.Fatal(err)
		}
		if again := openKnown(path); again.err != nil || !slices.Equal(again.last, p.last) {
			t.Errorf("%v; written and read %v, %v", p.last, again.last, again.err)
		}
	})
}
