package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// logLine is what this test reads of a log line in JSON.
type logLine struct {
	Level, Msg, Interface, IP, Reason, Took, Within, Nodes string
	Interfaces, Confirmed                                  int
	Holder1, Holder2                                       struct{ Node, Netns, Mac string }
}

// The log in JSON is readable by programs and people: what was done until all interfaces are observed, each conflict
// with its holders and their nodes, one summary of a burst, and with debug lines what was asked and answered.
func TestLogs(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	const shared = 15
	var addrs []netip.Addr
	for i := range byte(shared) {
		addrs = append(addrs, n.IPv4(10+i))
	}
	older := l.Pod(n, "older", lab.PodOptions{Addrs: addrs})
	a := l.Agent(n, "--log-format", "json")
	w := l.Watch(a)
	newcomer := l.Pod(n, "newcomer", lab.PodOptions{Addrs: addrs})
	for _, ip := range addrs {
		_, err := w.WaitConfirmed(ip, patience)
		l.Do(err)
	}
	lines := func() (all []logLine) {
		t.Helper()
		for text := range strings.Lines(a.Log()) {
			var line logLine
			if err := json.Unmarshal([]byte(text), &line); err != nil && strings.HasSuffix(text, "\n") {
				t.Fatalf("%v: %s", err, text)
			}
			all = append(all, line)
		}
		return all
	}
	find := func(ok func(line logLine) bool) int { return slices.IndexFunc(lines(), ok) }
	attached := find(func(line logLine) bool { return line.Msg == "attached" && line.Interface == older.HostInterface })
	observing := find(func(line logLine) bool { return line.Msg == "observing" && line.Interfaces == 1 })
	if attached < 0 || observing < attached {
		t.Errorf("attached in line %d, observing in line %d of\n%s", attached, observing, a.Log())
	} else if took, err := time.ParseDuration(lines()[observing].Took); err != nil || took <= 0 {
		t.Errorf("observing after %v, %v", took, err)
	}
	for _, msg := range []string{"probe sent", "reply received"} {
		if find(func(line logLine) bool {
			return line.Level == "DEBUG" && line.Msg == msg && line.Interface == newcomer.HostInterface && line.IP == addrs[0].String()
		}) < 0 {
			t.Errorf("no %q in\n%s", msg, a.Log())
		}
	}
	if find(func(line logLine) bool {
		return line.Level == "WARN" && line.Msg == "conflict confirmed" && line.IP == addrs[0].String() && line.Reason != "" &&
			line.Holder1.Node == n.ShortName() && line.Holder1.Netns == older.Name &&
			line.Holder2.Node == n.ShortName() && line.Holder2.Netns == newcomer.Name && line.Holder2.Mac != ""
	}) < 0 {
		t.Errorf("no line with both holders in\n%s", a.Log())
	}
	l.Eventually("a summary", func() error {
		if find(func(line logLine) bool {
			return line.Level == "WARN" && strings.HasPrefix(line.Msg, "many events of conflicts") && line.Confirmed == shared &&
				line.Within == "10s" && line.Nodes == fmt.Sprintf("%s (%d)", n.ShortName(), shared)
		}) < 0 {
			return errors.New(a.Log())
		}
		return nil
	})
	l.Do(a.Stop())
	for _, name := range []string{older.HostInterface, newcomer.HostInterface} {
		if find(func(line logLine) bool { return line.Msg == "detached" && line.Interface == name }) < 0 {
			t.Errorf("%s is not detached in\n%s", name, a.Log())
		}
	}
	if all := lines(); all[len(all)-1].Msg != "stopped observing" {
		t.Errorf("the last line is %+v", all[len(all)-1])
	}
}

// A pod that floods does not flood the log, also not with debug lines; what is left out is counted, and hides no other line.
func TestFloodOfDebugLines(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	w := l.Watch(a)
	flooder := l.Pod(n, "flooder", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(10)}})
	mac, err := flooder.MAC(flooder.Interface)
	l.Do(err)
	began := time.Now()
	flood := floodFrames(l, flooder, 2000, func(i int) []byte {
		ip := netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)})
		return lab.Ethernet(lab.Broadcast, mac, 0, unix.ETH_P_ARP, lab.ARP(lab.ARPReply, mac, ip, mac, n.IPv4(1)))
	})
	l.Eventually("debug lines are left out", func() error {
		if !strings.Contains(a.Log(), `msg="debug lines left out" about="reply received" lines=`) {
			return errors.New("no such line")
		}
		return nil
	})
	for _, name := range []string{"older", "newcomer"} {
		l.Pod(n, name, lab.PodOptions{Addrs: []netip.Addr{n.IPv4(20)}})
	}
	_, err = w.WaitConfirmed(n.IPv4(20), patience)
	l.Do(err)
	flood.end(l)
	sent := flood.count.Load()
	lines, most := strings.Count(a.Log(), `msg="reply received"`), 200+20*int(time.Since(began).Seconds()+1)
	t.Logf("%d replies sent, %d lines", sent, lines)
	if lines > most || sent < 5*int64(lines) {
		t.Errorf("%d lines about %d replies, want at most %d", lines, sent, most)
	}
	if !strings.Contains(a.Log(), "conflict confirmed") {
		t.Errorf("the flood hides a conflict:\n%s", a.Log())
	}
}
