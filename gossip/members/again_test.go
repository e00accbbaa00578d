package members

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector/cluster"
)

// vanish takes the network from a node without a good-bye: its address is free at once.
func (n *node) vanish() { n.transport.NodeAwareTransport.Shutdown() }

// An agent that is killed and starts again takes its own place at once, whatever comes
// first to the others: nobody waits until the old one is found dead.
func TestSuccessorReplaces(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Options)
		at     string
		limit  time.Duration
	}{
		{"newer epoch, same address", func(o *Options) { o.Epoch = 2 }, airAddress(3), 300 * time.Millisecond},
		{"newer epoch, other address", func(o *Options) { o.Epoch = 2 }, airAddress(33), 300 * time.Millisecond},
		{"node started again, same address", func(o *Options) { o.Boot = "other" }, airAddress(3), 2500 * time.Millisecond},
		{"another node, same address", func(o *Options) { o.Node = "other" }, airAddress(3), 2500 * time.Millisecond},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAir(t)
				first := open(t, 1, on(a, airAddress(1)))
				second := open(t, 2, on(a, airAddress(2)), joining(first))
				old := open(t, 3, on(a, airAddress(3)), joining(first))
				all := "n1:alive n2:alive n3:alive"
				within(t, "three", time.Minute, func() bool { return first.states() == all && second.states() == all })

				old.vanish()
				next := open(t, 3, on(a, test.at), joining(first), test.change)
				within(t, "the newcomer is there", test.limit, func() bool { return first.sees(next, cluster.Alive) })
				gone := func() bool { return !first.sees(old, cluster.Alive) && !first.sees(old, cluster.Suspect) }
				within(t, "the old one is not", test.limit, gone)
				if err := first.Send(old.Self().ID, nil); !errors.Is(err, ErrUnknownMember) {
					t.Errorf("sending to the old one: %v", err)
				}
				// Its own agent does not take it for a member either, nor does the other node.
				for _, n := range []*node{next, second} {
					within(t, "the others know", 10*time.Second, func() bool {
						return !n.sees(old, cluster.Alive) && !n.sees(old, cluster.Suspect)
					})
				}
				time.Sleep(2 * time.Minute)
				if !first.sees(next, cluster.Alive) || !gone() {
					t.Errorf("later: %s", first.states())
				}
				if first.heard("=n3") || strings.Count(first.all(), "-n3") != 1 {
					t.Errorf("the handler heard %s", first.all())
				}
				for _, member := range first.List() {
					if member.Namesake {
						t.Errorf("%s is called a namesake", member.Address)
					}
				}
			})
		})
	}
}

// all is what the handler heard.
func (n *node) all() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.news, " ")
}

func (n *node) sees(other *node, state cluster.State) bool {
	for _, m := range n.List() {
		if m.ID == other.Self().ID {
			return m.State == state
		}
	}
	return false
}

func TestNamesakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAir(t)
		first := open(t, 1, on(a, airAddress(1)))
		named := func(o *Options) { o.Node = "twin" }
		twins := []*node{
			open(t, 2, on(a, airAddress(2)), joining(first), named),
			open(t, 3, on(a, airAddress(3)), joining(first), named),
		}
		within(t, "three", time.Minute, func() bool { return first.states() == "n1:alive twin:alive twin:alive" })
		if problems := first.Status().Problems; len(problems) > 0 {
			t.Errorf("at once: %q", problems)
		}
		time.Sleep(time.Minute)
		for _, n := range append(twins, first) {
			count := 0
			for _, m := range n.List() {
				if m.Namesake != (m.Name == "twin") {
					t.Errorf("%s at %s: namesake %v", m.Name, m.Address, m.Namesake)
				}
				if m.Namesake {
					count++
				}
			}
			if problems := n.Status().Problems; count != 2 || len(problems) != 1 || !strings.Contains(problems[0], "have the name twin") {
				t.Errorf("%d namesakes, problems: %q", count, problems)
			}
		}
		twins[1].stop()
		within(t, "one is left", time.Minute, func() bool { return len(first.Status().Problems) == 0 })
	})
}

// UDP that is blocked between two nodes keeps no member from being alive.
func TestBlockedUDP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAir(t)
		first := open(t, 1, on(a, airAddress(1)))
		second := open(t, 2, on(a, airAddress(2)), joining(first))
		third := open(t, 3, on(a, airAddress(3)), joining(first))
		all := "n1:alive n2:alive n3:alive"
		within(t, "three", time.Minute, func() bool { return first.states() == all && third.states() == all })
		time.Sleep(time.Minute)
		if problems := first.Status().Problems; len(problems) > 0 {
			t.Errorf("before: %q", problems)
		}

		between := func(x, y string) func(from, to string) bool {
			return func(from, to string) bool { return from == x && to == y || from == y && to == x }
		}
		a.set(func() { a.loss = between(airAddress(1), airAddress(2)) })
		within(t, "the direct way is missed, though others ping for us", time.Minute, func() bool {
			return strings.Contains(strings.Join(first.Status().Problems, "\n"), "node n2 answers by TCP, but not by UDP") &&
				len(second.Status().Problems) == 1
		})
		if problems := third.Status().Problems; len(problems) > 0 || third.states() != all {
			t.Errorf("at the third: %s, %q", third.states(), problems)
		}
		a.set(func() { a.loss = func(string, string) bool { return true } })
		time.Sleep(time.Minute)
		for _, n := range []*node{first, second, third} {
			if problems := n.Status().Problems; len(problems) != 1 || !strings.Contains(problems[0], "none by UDP") || n.states() != all {
				t.Errorf("with no UDP at all: %s, %q", n.states(), problems)
			}
		}
		a.set(func() { a.loss = nil })
		within(t, "all is well", time.Minute, func() bool {
			return len(first.Status().Problems)+len(second.Status().Problems)+len(third.Status().Problems) == 0
		})
	})
}

// Loss is no blocked UDP.
func TestLossIsNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAir(t)
		random := rand.New(rand.NewPCG(1, 2))
		a.loss = func(string, string) bool { return random.IntN(20) == 0 }
		first := open(t, 1, on(a, airAddress(1)))
		for i := 2; i <= 5; i++ {
			open(t, i, on(a, airAddress(i)), joining(first))
		}
		within(t, "five", 2*time.Minute, func() bool { return strings.Count(first.states(), ":alive") == 5 })
		for range 600 {
			time.Sleep(time.Second)
			if problems := first.Status().Problems; len(problems) > 0 {
				t.Fatalf("problems: %q", problems)
			}
		}
		if strings.Contains(first.all(), "-") {
			t.Errorf("the handler heard %s", first.all())
		}
	})
}

// Who left is forgotten in time.
func TestGoneAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAir(t)
		first := open(t, 1, on(a, airAddress(1)))
		second := open(t, 2, on(a, airAddress(2)), joining(first))
		within(t, "two", time.Minute, func() bool { return first.states() == "n1:alive n2:alive" })
		second.stop()
		time.Sleep(goneFor - 10*time.Second)
		if got := first.states(); got != "n1:alive n2:left" {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		if got := first.states(); got != "n1:alive" {
			t.Error(got)
		}
	})
}
