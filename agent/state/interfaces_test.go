package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/detector"
)

var testOrigins = []observe.Origin{
	{HostEnd: observe.HostEnd{Ifindex: 3, Name: "veth3", MAC: "02:00:00:00:00:03"}, Peer: "eth0", Netns: 7},
	{
		HostEnd: observe.HostEnd{Ifindex: 5, Name: "cali5", MAC: "ee:ee:ee:ee:ee:ee"}, Peer: "net7", Netns: 1 << 63, Role: observe.PrimaryByResult,
		Pod: detector.Pod{Namespace: "shop", Name: "cart", UID: "u"}, CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	},
}

var sameOrigins = cmpopts.IgnoreUnexported(observe.Origin{})

// What is known of interfaces survives the agent, not the boot.
func TestInterfaces(t *testing.T) {
	opts := testOptions(t.TempDir())
	s, _ := Open(opts)
	s.Save(State{Interfaces: testOrigins})
	s.flush()
	s.writer.unlock()
	s, read := Open(opts)
	s.writer.unlock()
	if diff := cmp.Diff(testOrigins, read.Interfaces, sameOrigins); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	opts.BootID += "2"
	s, read = Open(opts)
	s.writer.unlock()
	if len(read.Interfaces) != 0 {
		t.Errorf("after another boot: %+v", read)
	}
}

// An invalid interface costs no other, and no conflict.
func TestInvalidInterfaces(t *testing.T) {
	opts := testOptions(t.TempDir())
	good := encode(State{Snapshot: sample(t, opts.nodeID(), 1, 0, 0), Interfaces: testOrigins}, opts)
	for from, to := range map[string]string{
		`"name":"veth3"`: `"name":""`, `"ifindex":3`: `"ifindex":-3`, `"peer":"eth0"`: `"role":9`, `"mac":"02:00:00:00:00:03"`: `"mac":7`,
	} {
		t.Run(from, func(t *testing.T) {
			opts := opts
			opts.Dir = t.TempDir()
			conflicts, interfaces, _ := strings.Cut(string(good), `"interfaces":`)
			data := conflicts + `"interfaces":` + strings.Replace(interfaces, from, to, 1)
			if data == string(good) {
				t.Fatal("nothing was changed")
			}
			if err := os.WriteFile(filepath.Join(opts.Dir, fileName), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
			s, read := Open(opts)
			s.writer.unlock()
			if diff := cmp.Diff(testOrigins[1:], read.Interfaces, sameOrigins); diff != "" || len(read.Open) != 1 {
				t.Errorf("%d conflicts; (-want +got):\n%s", len(read.Open), diff)
			}
		})
	}
}
