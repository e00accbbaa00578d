package detector

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// conflicts returns the open conflict of each of these nodes. It fails the test unless they are confirmed and
// have one id and that many holders.
func (n *network) conflicts(holders int, nodes ...int) []Conflict {
	n.t.Helper()
	var list []Conflict
	for _, i := range nodes {
		open := n.worlds[i-1].d.Conflicts(false)
		if len(open) != 1 || open[0].State != Confirmed || len(open[0].Holders) != holders || open[0].Scope != CrossNode {
			n.t.Errorf("node %d: %+v", i, open)
			continue
		}
		list = append(list, open[0])
		if open[0].ID != list[0].ID {
			n.t.Errorf("node %d has %s, node %d %s", i, open[0].ID, nodes[0], list[0].ID)
		}
	}
	return list
}

// quiet fails the test if there is an open conflict or a remote holder.
func (n *network) quiet() {
	n.t.Helper()
	for i, w := range n.worlds {
		if open := w.d.Conflicts(false); len(open) != 0 {
			n.t.Errorf("node %d: still open: %+v", i+1, open)
		}
		for _, b := range w.d.Bindings(nil) {
			if b.Holder.ID.Node != w.d.table.opts.Node {
				n.t.Errorf("node %d still knows %+v", i+1, b.Holder)
			}
		}
		if err := audit(w.d); err != nil {
			n.t.Errorf("node %d: %v", i+1, err)
		}
	}
}

func (n *network) logOnFailure() {
	if !n.t.Failed() {
		return
	}
	for i, w := range n.worlds {
		n.t.Logf("node %d:", i+1)
		w.history(n.t)
	}
}

// Each of two nodes finds their duplicate itself, with the same id, and finds it again when it returns. The
// conflict ends on both nodes when either holder is gone.
func TestTwoNodes(t *testing.T) {
	for _, loss := range []float64{0, 0.05, 0.3} {
		for seed := range uint64(20) {
			t.Run(fmt.Sprintf("loss=%v/%d", loss, seed), func(t *testing.T) {
				n := newNetwork(t, 2, seed, loss)
				defer n.logOnFailure()
				n.do(1, "a announces")
				n.run(10 * time.Second)
				n.do(2, "b sends")
				n.run(20 * time.Second)
				for _, c := range n.conflicts(2, 1, 2) {
					if want := conflictID(c.Key, 1); c.ID != want {
						t.Errorf("id %s, want %s", c.ID, want)
					}
					took, limit := c.ConfirmedAt.Sub(c.SecondSeen), 1500*time.Millisecond
					if loss > 0 {
						limit = 4 * time.Second
					}
					if loss > 0.1 {
						limit = 20 * time.Second
					}
					if took < time.Second || took > limit {
						t.Errorf("confirmed after %v", took)
					}
				}
				n.do(2, "b gone")
				n.run(25 * time.Second)
				n.quiet()
				n.do(2, "c announces")
				n.run(20 * time.Second)
				for _, c := range n.conflicts(2, 1, 2) {
					if want := conflictID(c.Key, 2); c.ID != want {
						t.Errorf("id %s, want %s", c.ID, want)
					}
				}
				n.do(1, "a gone")
				n.run(25 * time.Second)
				n.quiet()
			})
		}
	}
}

// Agents share the number of resolved conflicts, whatever each of them began with.
func TestNodesShareOccurrences(t *testing.T) {
	n := newNetwork(t, 2, 1, 0)
	defer n.logOnFailure()
	for range 2 { // on one node only
		n.do(1, "a announces")
		n.do(1, "b announces")
		n.run(10 * time.Second)
		n.do(1, "b gone")
		n.run(10 * time.Second)
	}
	n.do(2, "c announces")
	n.run(10 * time.Second)
	for _, c := range n.conflicts(2, 1, 2) {
		if want := conflictID(c.Key, 3); c.ID != want {
			t.Errorf("id %s, want %s", c.ID, want)
		}
	}
}

// D7 on three nodes. Each node finds all holders.
func TestThreeNodes(t *testing.T) {
	for seed := range uint64(10) {
		n := newNetwork(t, 3, seed, 0.05)
		for i, name := range []string{"a", "b", "c"} {
			n.do(i+1, name+" announces")
			n.run(time.Duration(n.random.IntN(1500)) * time.Millisecond)
		}
		n.run(15 * time.Second)
		n.conflicts(3, 1, 2, 3)
		n.do(2, "b gone")
		n.run(10 * time.Second)
		n.conflicts(2, 1, 3)
		n.do(3, "c gone")
		n.run(10 * time.Second)
		n.quiet()
		n.logOnFailure()
	}
}

// D12: the duplicate starts while the nodes cannot reach each other, or they lose the connection while they
// verify it.
func TestPartition(t *testing.T) {
	for seed := range uint64(10) {
		for _, early := range []bool{true, false} {
			n := newNetwork(t, 2, seed, 0)
			n.cut["n2/boot"] = early
			n.do(1, "a announces")
			n.do(2, "b announces")
			n.run(time.Duration(200+n.random.IntN(700)) * time.Millisecond)
			n.cut["n2/boot"] = true
			n.run(time.Minute)
			for _, w := range n.worlds {
				if slices.ContainsFunc(w.d.Conflicts(false), func(c Conflict) bool { return c.State == Confirmed }) {
					t.Error("confirmed without a reply of the other node")
				}
			}
			n.cut["n2/boot"] = false
			healed := n.now
			n.run(40 * time.Second)
			for _, c := range n.conflicts(2, 1) {
				if took := c.ConfirmedAt.Sub(healed); took > 33*time.Second {
					t.Errorf("confirmed %v after the heal", took)
				}
			}
			n.conflicts(2, 1, 2)
			// A conflict stays confirmed during and after a partition.
			n.cut["n2/boot"] = true
			n.run(2 * time.Minute)
			n.cut["n2/boot"] = false
			n.run(time.Minute)
			for _, c := range n.conflicts(2, 1, 2) {
				if want := conflictID(c.Key, 1); c.ID != want {
					t.Errorf("id %s, want %s", c.ID, want)
				}
			}
			n.logOnFailure()
		}
	}
}

// TestChurnBetweenNodes moves addresses from node to node, without duplicates; see TestChurn.
func TestChurnBetweenNodes(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := newNetwork(t, 3, seed, 0.05)
			last, at := [4]string{}, [4]int{}
			for round := range 200 {
				i := n.random.IntN(len(last))
				ip := ipv4(i + 1)
				n.run(time.Duration(n.random.IntN(3000)) * time.Millisecond)
				old, where, next, node := last[i], at[i], fmt.Sprintf("p%d", round), n.random.IntN(3)+1
				early := n.random.IntN(3) == 0
				if old != "" && early {
					n.do(where, fmt.Sprintf("%s drops %s", old, ip))
				}
				n.do(node, fmt.Sprintf("%s %s %s", next, []string{"announces", "sends"}[n.random.IntN(2)], ip))
				if old != "" && !early {
					n.run(time.Duration(n.random.IntN(900)) * time.Millisecond)
					n.do(where, fmt.Sprintf("%s drops %s", old, ip))
				}
				if old != "" && n.random.IntN(2) == 0 {
					n.run(time.Duration(n.random.IntN(3)) * 200 * time.Millisecond)
					n.do(where, old+" gone")
				}
				last[i], at[i] = next, node
			}
			n.run(time.Minute)
			suspicions := 0
			for i, w := range n.worlds {
				for _, line := range w.log() {
					if strings.Contains(line, "suspected") {
						suspicions++
					} else if !strings.Contains(line, "faded") && !strings.Contains(line, "changed") {
						t.Errorf("node %d: %s", i+1, line)
					}
				}
			}
			if suspicions == 0 {
				t.Error("not even a suspicion: the test tests nothing")
			}
			n.quiet()
		})
	}
}
