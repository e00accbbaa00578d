package observe

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/detector"
)

// lose makes addresses of an interface fail their duplicate address detection.
func lose(where netns.Where, ips ...string) func(*links.Interface) {
	return func(l *links.Interface) {
		for _, ip := range ips {
			l.View.Addresses = append(l.View.Addresses, netns.Address{IP: netip.MustParseAddr(ip), Where: where, Lost: true})
		}
	}
}

// TestLost: lost addresses are counted and listed by interface, those inside a pod are not.
func TestLost(t *testing.T) {
	w := newHarness(t, "")
	b, a := w.add("veth-b", "", "eth0", 2, 7, "10.0.0.5"), w.add("veth-a", "", "eth0", 3, 8)
	w.change(b, lose(netns.OnPeer, "fd00::5", "fd00::6"))
	w.change(b, lose(netns.Elsewhere, "fd00::7"))
	w.change(a, lose(netns.OnPeer, "fd00::8"))
	for limit, want := range map[int]string{0: "", 2: "veth-a fd00::8, veth-b fd00::5", 9: "veth-a fd00::8, veth-b fd00::5, veth-b fd00::6"} {
		list, total := w.Lost(limit)
		var got []string
		for _, l := range list {
			got = append(got, l.Interface.Name+" "+l.Key.IP.String())
		}
		if total != 3 || strings.Join(got, ", ") != want {
			t.Errorf("limit %d: %d, %v; want 3, %s", limit, total, got, want)
		}
	}
}

// TestLostIsLogged: a line names the first address of those that appear together. There are few lines,
// however many addresses a pod loses.
func TestLostIsLogged(t *testing.T) {
	w := newHarness(t, "")
	var log bytes.Buffer
	w.Log = slog.New(slog.NewTextHandler(&log, nil))
	lines := func() []string {
		defer log.Reset()
		return strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
	}
	i := w.add("veth0", "", "eth0", 2, 7, "10.0.0.5")
	i.Pod.Pod = detector.Pod{Namespace: "shop", Name: "web-0"}
	w.change(i, lose(netns.Elsewhere, "fd00::1"))
	if got := lines(); got[0] != "" {
		t.Errorf("logged %q of an address inside the pod", got)
	}
	w.change(i, lose(netns.OnPeer, "fd00::5", "fd00::6"))
	got := lines()
	for _, want := range []string{"level=WARN", "ip=fd00::5", "network=default", "interface=veth0", "pod=shop/web-0", "others=1 linesLeftOut=0"} {
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("logged %q, want one line with %s", got, want)
		}
	}
	w.change(i, func(*links.Interface) {})
	w.change(i, lose(netns.OnPeer, "fd00::7"))
	if got := lines(); got[0] != "" {
		t.Errorf("logged %q so soon after the last line about the interface", got)
	}
	i.lostLogged = time.Now().Add(-lostPause)
	w.change(i, lose(netns.OnPeer, "fd00::8"))
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "ip=fd00::8") || !strings.Contains(got[0], "linesLeftOut=1") {
		t.Errorf("logged %q, want a line about the new address", got)
	}
	for n := range 30 {
		pod := w.add(fmt.Sprintf("more%d", n), "", "eth0", 10+n, uint64(10+n), "10.0.1.5")
		w.change(pod, lose(netns.OnPeer, "fd00::9"))
	}
	if got := lines(); len(got) > 10 {
		t.Errorf("%d lines about 30 pods, want 10 or fewer", len(got))
	}
}
