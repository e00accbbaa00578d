package observe

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
)

// Only names that KubeVirt makes are converted.
func TestFirstName(t *testing.T) {
	for peer, want := range map[string]string{
		"eth0": "eth0", "eth0-nic": "eth0", "net12-nic": "net12", "16477688c0e-nic": "pod16477688c0e",
		"storage-nic": "storage-nic", "nic": "nic", "-nic": "-nic", "eth-nic": "eth-nic", "myeth0-nic": "myeth0-nic",
		"16477688c0-nic": "16477688c0-nic", "net1-nic0": "net1-nic0", "pod16477688c0-": "pod16477688c0-",
	} {
		if got := firstName(peer); got != want {
			t.Errorf("%s: %s, want %s", peer, got, want)
		}
	}
}

// A name counts once the pod's end was seen up with it, or at once if it is no temporary one; then it stays. An agent that starts
// before that finds the name itself.
func TestTemporaryNames(t *testing.T) {
	type scan struct {
		peer string
		down bool
	}
	const again = "another agent"
	for name, test := range map[string]struct {
		scans []scan // one of no name: another agent starts
		want  string // the network
		first string // the name on disk
	}{
		"Docker 28":                                 {[]scan{{"veth0578244", true}, {"eth0", true}, {"eth0", false}}, "default", "eth0"},
		"it was not seen with its name before":      {[]scan{{"tmp5c2f1", true}, {"eth0", false}}, "default", "eth0"},
		"a name that the agent does not know":       {[]scan{{"veth0578244", true}, {"storage", true}, {"storage", false}}, "storage@lan1", "storage"},
		"another agent starts meanwhile":            {[]scan{{"veth0578244", true}, {again, false}, {"veth0578244", true}, {"eth0", false}}, "default", "eth0"},
		"another agent starts when it has its name": {[]scan{{"veth0578244", true}, {again, false}, {"eth0", false}}, "default", "eth0"},
		"it was never up":                           {[]scan{{"veth0578244", true}, {"other", true}}, "other@lan1", ""},
		"the pod renames it":                        {[]scan{{"storage", false}, {"storage", true}, {"eth0", true}, {"eth0", false}}, "storage@lan1", "storage"},
		"the pod renames it, and an agent starts":   {[]scan{{"storage", false}, {again, false}, {"eth0", true}, {"eth0", false}}, "storage@lan1", "storage"},
		"the pod renames its eth0":                  {[]scan{{"eth0", false}, {"net7", true}, {"net7", false}}, "default", "eth0"},
		"a plugin has left it down":                 {[]scan{{"net1", true}, {"eth0", true}, {"eth0", false}}, "net1@lan1", "net1"},
		"a plugin has left its eth0 down":           {[]scan{{"eth0", true}, {"x", true}, {"x", false}}, "default", "eth0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t, "")
			var i *Interface
			for _, scan := range test.scans {
				if scan.peer == again {
					onDisk, err := json.Marshal(w.Origins.Saved(w.Ready()))
					var saved []Origin
					if err = errors.Join(err, json.Unmarshal(onDisk, &saved)); err != nil {
						t.Fatal(err)
					}
					w = newHarness(t, "")
					w.Origins.Restore(saved)
					i = nil
					continue
				}
				l := link("veth0", "lan1", scan.peer, 2, 7, "10.0.0.5")
				l.View.PeerDown = scan.down
				kind := links.Changed
				if i == nil {
					kind = links.Added
				}
				i, _ = w.Update(links.Event{Kind: kind, Interface: l}, time.Now())
			}
			last := test.scans[len(test.scans)-1].peer
			if got := i.Network(); got != test.want || i.Renamed() != (test.first != "" && test.first != last) {
				t.Errorf("network %s, want %s; renamed %t", got, test.want, i.Renamed())
			}
			if saved := w.Origins.Saved(w.Ready()); len(saved) != 1 || saved[0].Peer != test.first {
				t.Errorf("%+v is saved, want the name %q", saved, test.first)
			}
		})
	}
}

// The address on the host end is the node's as soon as the other end has the name of a primary one.
func TestHostEndOfTemporaryName(t *testing.T) {
	w := newHarness(t, "")
	ip := netip.MustParseAddr("10.0.0.1")
	w.Update(links.Event{Kind: links.HostAddresses, Host: []links.HostAddress{{IP: ip, Device: "veth0", Index: 2}}}, time.Now())
	l := link("veth0", "", "veth0578244", 2, 7)
	l.View.PeerDown = true
	i, _ := w.Update(links.Event{Kind: links.Added, Interface: l}, time.Now())
	if got := w.Own.IPs(); len(got) != 0 {
		t.Errorf("before: the node's addresses are %v", got)
	}
	w.change(i, func(l *links.Interface) { l.View.Peer, l.View.PeerDown = "eth0", false })
	if got := w.Own.IPs(); !slices.Equal(got, []netip.Addr{ip}) {
		t.Errorf("after: the node's addresses are %v", got)
	}
}
