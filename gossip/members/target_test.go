package members

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1":          "10.0.0.1:7951",
		"10.0.0.1:80":       "10.0.0.1:80",
		"::ffff:10.0.0.1":   "10.0.0.1:7951",
		"fd00::1":           "[fd00::1]:7951",
		"[fd00::1]":         "[fd00::1]:7951",
		"[fd00::1]:80":      "[fd00::1]:80",
		"dupip":             "dupip:7951",
		"dupip.example:80":  "dupip.example:80",
		"dupip.example.:80": "dupip.example.:80",
		"":                  "",
		":80":               "",
		"a:b":               "",
		"a:0":               "",
		"a:65536":           "",
		"a/10.0.0.1:80":     "", // memberlist takes the beginning for a name
		"a b":               "",
		"0.0.0.0":           "",
		"224.0.0.1:80":      "",
		"fe80::1%eth0":      "",
		"http://a:80":       "",
	} {
		got, err := parseTarget(text, DefaultPort)
		if err != nil && want != "" || err == nil && got.String() != want {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
	if _, err := Open(Options{Node: "n", Boot: "b", Bind: "127.0.0.1", Join: []string{"a:b"}}); err == nil || !strings.Contains(err.Error(), `--join "a:b"`) {
		t.Errorf("opening: %v", err)
	}
}

// address is 10.0.0.n:7951.
func address(n byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 7951)
}

func addresses(from, to byte) (all []netip.AddrPort) {
	for n := from; n <= to; n++ {
		all = append(all, address(n))
	}
	return all
}

func set(all ...netip.AddrPort) map[netip.AddrPort]bool {
	s := map[netip.AddrPort]bool{}
	for _, at := range all {
		s[at] = true
	}
	return s
}

func TestChoose(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		name                      string
		listed, lost, there       []netip.AddrPort
		aliases                   []netip.AddrPort
		wantListed, wantRemembers int
	}{
		{name: "nothing"},
		{name: "ourselves only", listed: addresses(1, 1)},
		{name: "three at a time", listed: addresses(2, 9), wantListed: 3},
		{name: "one twice", listed: append(addresses(2, 2), address(2)), wantListed: 1},
		{name: "only those who are missing", listed: addresses(2, 9), there: addresses(3, 9), wantListed: 1},
		{name: "all are there", listed: addresses(2, 9), there: addresses(2, 9)},
		{name: "lost ones", lost: addresses(20, 29), wantRemembers: 3},
		{name: "lost ones beside", listed: addresses(2, 9), lost: addresses(20, 29), wantListed: 2, wantRemembers: 1},
		{name: "more room for the lost", listed: addresses(2, 2), lost: addresses(20, 29), wantListed: 1, wantRemembers: 2},
		{name: "a lost one is listed", listed: addresses(2, 2), lost: addresses(2, 2), wantListed: 1},
		{name: "the name of a service", listed: addresses(2, 2), there: addresses(3, 3), aliases: addresses(2, 2)},
		{name: "who is alone tries all", listed: addresses(2, 2), aliases: addresses(2, 2), wantListed: 1},
	} {
		j := newJoins(nil, test.lost, now)
		for _, at := range test.aliases {
			j.alias[at] = now.Add(time.Minute)
		}
		chosen := j.choose(test.listed, set(test.there...), set(address(1)), now)
		listed := 0
		for i, at := range chosen {
			if slices.Contains(test.listed, at) {
				listed++
			}
			if slices.Contains(chosen[:i], at) || at == address(1) || slices.Contains(test.there, at) {
				t.Errorf("%s: %v", test.name, chosen)
			}
		}
		if listed != test.wantListed || len(chosen)-listed != test.wantRemembers {
			t.Errorf("%s: %v", test.name, chosen)
		}
	}
}

func TestBookIsBounded(t *testing.T) {
	now := time.Now()
	j := newJoins(nil, addresses(1, 64), now)
	for i := range 2 * maxLost {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i / 256), byte(i)}), 1)
		j.lost(at.String(), now.Add(time.Duration(i+1)*time.Second))
	}
	if len(j.book) != maxLost || !j.book[address(1)].IsZero() {
		t.Errorf("%d in the book, or not the latest", len(j.book))
	}
	if chosen := j.choose(nil, nil, nil, now.Add(lostFor+time.Hour)); len(chosen) != 0 || len(j.book) != 0 {
		t.Errorf("after a day: %v of %d", chosen, len(j.book))
	}
}

// A name is resolved anew each time, and stands for all its addresses.
func TestJoinByName(t *testing.T) {
	first := open(t, 1)
	answers := make(chan []netip.Addr, 1)
	n := prepare(t, 2, func(o *Options) {
		o.Join = []string{"members.test:" + strings.TrimPrefix(first.Self().Address, "127.0.0.1:")}
	})
	var addrs []netip.Addr
	n.joins.lookup = func(_ context.Context, network, host string) ([]netip.Addr, error) {
		if network != "ip" || host != "members.test" {
			t.Errorf("resolving %s %s", network, host)
		}
		select {
		case addrs = <-answers:
		default:
		}
		if addrs == nil {
			return nil, errors.New("no such host")
		}
		return addrs, nil
	}
	n.run()
	eventually(t, "it is said that the name means nothing", func() bool {
		return strings.Contains(strings.Join(n.Status().Problems, "\n"), "resolving members.test: no such host")
	})
	answers <- []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("127.0.0.1")}
	eventually(t, "it joins", func() bool { return n.states() == "n1:alive n2:alive" && len(n.Status().Problems) == 0 })
}

func TestPeersFile(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want int
		bad  bool
	}{
		"good":           {`{"peers":["10.0.0.1:1","[fd00::1]:7951"]}`, 2, false},
		"of a later one": {`{"peers":["10.0.0.1:1"],"more":1}`, 1, false},
		"empty":          {``, 0, true},
		"cut":            {`{"peers":["10.0.0.1:1"`, 0, true},
		"no address":     {`{"peers":["a:1"]}`, 0, true},
		"no port":        {`{"peers":["10.0.0.1:0"]}`, 0, true},
		"multicast":      {`{"peers":["224.0.0.1:1"]}`, 0, true},
		"too many":       {`{"peers":["10.0.0.1:1"` + strings.Repeat(`,"10.0.0.1:1"`, maxPeers) + `]}`, 0, true},
		"too large":      {`{"peers":[]` + strings.Repeat(" ", maxPeersFile) + `}`, 0, true},
	} {
		path := filepath.Join(t.TempDir(), "peers.json")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		log := &output{}
		p := openPeers(path, logTo(log))
		_, err := os.Stat(path + ".corrupt")
		if len(p.known()) != test.want || (err == nil) != test.bad || (len(p.problems()) > 0) != test.bad || (log.String() != "") != test.bad {
			t.Errorf("%s: %v, %v, %q, %s", name, p.known(), err, p.problems(), log)
		}
	}
}

func TestPeersAreWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers.json")
	p := openPeers(path, logTo(&output{}))
	p.write(set(addresses(1, 200)...))
	first := openPeers(path, logTo(&output{})).known()
	if len(first) != maxPeers {
		t.Fatalf("%d peers", len(first))
	}
	p.write(set(addresses(1, 200)...))
	if again := openPeers(path, logTo(&output{})).known(); !slices.Equal(again, first) {
		t.Error("without need, others are remembered")
	}
	p.write(nil)
	if again := openPeers(path, logTo(&output{})).known(); !slices.Equal(again, first) {
		t.Error("one who is alone forgets all")
	}
	p.write(set(first[:3]...))
	if again := openPeers(path, logTo(&output{})).known(); !slices.Equal(again, first[:3]) {
		t.Errorf("three are left: %v", again)
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	p.write(set(addresses(1, 2)...))
	if len(p.problems()) != 1 {
		t.Errorf("problems: %q", p.problems())
	}
}

// An agent that starts again finds the others without any list.
func TestRejoinByPeersFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers.json")
	first := open(t, 1)
	second := open(t, 2, joining(first), func(o *Options) { o.PeersFile = path })
	eventually(t, "two", func() bool { return second.states() == "n1:alive n2:alive" })
	second.stop()
	again := open(t, 2, func(o *Options) { o.PeersFile, o.Epoch = path, 2 })
	eventually(t, "two again", func() bool { return strings.HasPrefix(again.states(), "n1:alive n2:") })
}
