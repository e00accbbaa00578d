package members

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Whoever has lost all others reports that before it has tried to join them again.
func TestAlone(t *testing.T) {
	for name, test := range map[string]struct {
		others int
		known  []netip.AddrPort
		err    error
		want   string
	}{
		"the first":    {0, nil, nil, ""},
		"one is there": {1, airAddresses(2, 3), errors.New("no route"), ""},
		"all are lost": {0, airAddresses(2, 3), nil, "this node is alone: none of 2 other nodes"},
		"and tried":    {0, airAddresses(2, 3), errors.New("no route"), "this node is alone: no route"},
	} {
		j := newJoins(nil, test.known, time.Now())
		j.err = test.err
		got := strings.Join(j.problems(test.others), "; ")
		if test.want == "" && got != "" || !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// What keeps two agents apart is one clause at each of them, which is over when it is.
func TestApart(t *testing.T) {
	for _, test := range []struct {
		name        string
		change      func(*Options)
		want, there string
	}{
		{"another cluster", func(o *Options) { o.Label = "other" }, "it belongs to a cluster with another name: check --cluster", "is of another cluster"},
		{"no key", func(o *Options) { o.KeyFile = "" }, "it has a --gossip-key-file and this node has none", "does not have the gossip key of this node"},
	} {
		inAir(t, func(t *testing.T, a *air) {
			first := open(t, a, 1)
			n := open(t, a, 2, joining(first), test.change)
			within(t, test.name, time.Minute, func() bool {
				return strings.Contains(n.problems(), "this node is alone: joining 10.0.0.1:7951: "+test.want)
			})
			if !strings.Contains(first.problems(), test.there) || first.count() != 1 || n.count() != 1 {
				t.Errorf("%s: %q", test.name, first.problems())
			}
			n.stop()
			last := open(t, a, 2, joining(first), func(o *Options) { o.Epoch = 2 })
			complete(t, time.Minute, first, last)
			within(t, "nothing is wrong", 10*time.Minute, func() bool { return last.problems()+first.problems() == "" })
		})
	}
}

func TestNobodyIsThere(t *testing.T) {
	n := open(t, nil, 1, func(o *Options) { o.Join = []string{"127.0.0.99:9"} })
	const want = "this node is alone: joining 127.0.0.99:9: dial tcp 127.0.0.99:9: connect: connection refused"
	within(t, want, 30*time.Second, func() bool { return n.problems() == want })
	second := open(t, nil, 2, joining(n))
	complete(t, 30*time.Second, n, second)
	within(t, "it is over", 30*time.Second, func() bool { return n.problems() == "" })
}

// A node whose UDP is blocked, or that is cut off, reports it within ten seconds and before the others are taken for
// dead. The others report nothing.
func TestBlocked(t *testing.T) {
	const udp, all = "other nodes answer by TCP, but none by UDP: allow UDP to and from 10.0.0.1:7951", "no other node answers: this node, 10.0.0.1:7951, is cut off from the others"
	for _, test := range []struct {
		name, want string
		others     int
		stream     bool
	}{
		{"UDP of one of two", udp, 1, false},
		{"UDP of one of ten", udp, 9, false},
		{"one of two", all, 1, true},
		{"one of ten", all, 9, true},
	} {
		inAir(t, func(t *testing.T, a *air) {
			nodes := openCluster(t, a, 1+test.others)
			time.Sleep(time.Minute)
			if problems := nodes[0].problems(); problems != "" {
				t.Errorf("%s: before: %q", test.name, problems)
			}
			own := nodes[0].address()
			a.lose(func(from, to netip.AddrPort, stream bool) bool {
				return (from == own || to == own) && (test.stream || !stream)
			})
			took := within(t, test.name, 10*time.Second, func() bool { return nodes[0].problems() == test.want })
			if took < blockedFor-2*time.Second {
				t.Errorf("%s: after %s already", test.name, took)
			}
			if nodes[0].count() != len(nodes) {
				t.Errorf("%s: somebody is taken for dead", test.name)
			}
			if len(nodes) > 2 && nodes[1].problems() != "" {
				t.Errorf("%s: another node reports %q", test.name, nodes[1].problems())
			}
			a.lose(nil)
			within(t, "it is over", 2*time.Minute, func() bool { return nodes[0].problems() == "" && nodes[0].count() == len(nodes) })
		})
	}
}

// Loss is no problem, and nobody is taken for dead.
func TestLossIsNoProblem(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		a.lose(randomLoss(0.05))
		nodes := openCluster(t, a, 5)
		for range 600 {
			time.Sleep(time.Second)
			if problems := nodes[0].problems(); problems != "" {
				t.Fatalf("problems: %q", problems)
			}
		}
		for _, n := range nodes {
			if len(n.changes) != 4 {
				t.Errorf("%s: %v", n.self.Name, n.changes)
			}
		}
	})
}
