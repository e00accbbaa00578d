// Package scale runs clusters of 50, 500 and 5,000 nodes in one process, in virtual time. Every node
// is real gossip and a real detector, joined by agent/exchange. Package simnet is the network between
// them, and pods exist in name only. With 5,000 nodes the membership is simulated, too; see simulatedMembers.
//
// It compares the results with the goals of the design and prints the others. `make scale` runs it;
// a short run is one of the ordinary tests.
package scale

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	sizes       = flag.String("sizes", "", "play everything with clusters of so many nodes, for example 50,500")
	simulateAll = flag.Bool("simulate", false, "simulate the membership of small clusters, too")
	plain       = flag.Bool("plain", false, "without a key")
	shared      = flag.String("shared", "250,500,1000", "in the phase prefix two nodes share so many addresses, one play for each number")
	perPod      = flag.Int("per-pod", 1, "how many of these addresses are in one pod")
	atOnce      = flag.String("at-once", "1000,4000,10000", "in the phase mass two nodes share so many addresses at once, one play for each number")
	pairs       = flag.Int("pairs", 1, "in how many pairs of pods these addresses are")
	own         = flag.Int("own", 5, "how many addresses each node has itself")
	ownMany     = flag.Int("own-many", 4096, "the same of the crowded nodes, as many as an agent compares")
	crowded     = flag.Int("crowded", 3, "how many nodes are crowded")
	ownShared   = flag.Int("own-shared", 1, "how many of its own addresses a node has in common with all others")
	seeds       = flag.Int("seeds", 3, "how many nodes are in the join list of all; as many as there are is a DNS name of all nodes")
	seed        = flag.Uint64("seed", 1, "of the random numbers")
	maxReal     = flag.Int("real", 500, "the largest cluster of real memberlists: what they remember of each other grows with the square")
	only        = flag.String("phases", "", "play these phases only after the storm, for example rest,steady; many and vips are storms of their own")
)

// TestSmall is a short play with 50 nodes.
func TestSmall(t *testing.T) {
	if *sizes != "" {
		t.Skip("a long run was requested")
	}
	var out strings.Builder
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(out.String())
		}
	})
	defer func(n int) { *crowded = n }(*crowded)
	*crowded = min(*crowded, 1) // more take half a minute
	for _, simulated := range []bool{false, true} {
		inSimulation(t, 50, simulated, &out, func(tw *simulation, r *report) {
			tw.storm(10, 5*time.Second, r)
			tw.ownTaken(800, r)
			tw.steady(400, 10, r) // both are enough for a 99th percentile: of 50, two lost packets would decide it
			tw.prefix(250, 250, r)
			tw.prefix(500, 1, r)
			tw.mass(1000, 10, r)
			tw.everywhere(5, r)
			tw.vips(r)
		})
	}
}

// TestScale plays all phases, with the number of nodes from the flags.
func TestScale(t *testing.T) {
	if *sizes == "" {
		t.Skip("it takes minutes: make scale runs it")
	}
	addresses := numbers(t, *shared)
	for _, size := range numbers(t, *sizes) {
		t.Run(strconv.Itoa(size), func(t *testing.T) { playAll(t, size, addresses, os.Stdout) })
	}
}

// numbers returns the numbers of a flag.
func numbers(t testing.TB, list string) (numbers []int) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// playAll plays all phases. In one of them two nodes share so many addresses.
func playAll(t *testing.T, size int, addresses []int, out io.Writer) {
	const few, many = 30, 110
	// Garbage is collected often where there is little room for it, and seldom otherwise or if GOMEMLIMIT bounds it.
	percent := 300
	if size > 1000 && debug.SetMemoryLimit(-1) == math.MaxInt64 {
		percent = 25
	}
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	simulated := size > *maxReal || *simulateAll
	membership := "memberlist"
	if simulated {
		membership = "simulated"
	}
	fmt.Fprintf(out, "\n%d nodes, %.0f%% of packets lost; membership: %s\n", size, loss*100, membership)
	wanted := func(phase string) bool {
		return *only == "" || slices.Contains(strings.Split(*only, ","), phase)
	}
	phases := []struct {
		name string
		play func(*simulation, *report)
	}{
		{"rest", func(tw *simulation, r *report) { tw.rest(r) }},
		{"own", func(tw *simulation, r *report) { tw.ownTaken(50, r) }},
		{"steady", func(tw *simulation, r *report) { tw.steady(200, few, r) }},
		{"prefix", func(tw *simulation, r *report) {
			for _, n := range addresses {
				tw.prefix(n, *perPod, r)
			}
		}},
		{"mass", func(tw *simulation, r *report) {
			for _, n := range numbers(tw.t, *atOnce) {
				tw.mass(n, *pairs, r)
			}
		}},
		{"silent", func(tw *simulation, r *report) { tw.silent(r) }},
		{"suspended", func(tw *simulation, r *report) { tw.suspended(few, r) }},
		{"rolling", func(tw *simulation, r *report) { tw.rolling(50, few, r) }},
		{"rollout", func(tw *simulation, r *report) { tw.rollout(50, few, r) }},
		{"cut", func(tw *simulation, r *report) { tw.cut(50, few, r) }},
		{"everywhere", func(tw *simulation, r *report) { tw.everywhere(few, r) }},
	}
	if *only != "many" && *only != "vips" {
		inSimulation(t, size, simulated, out, func(tw *simulation, r *report) {
			tw.storm(few, 10*time.Second, r)
			for _, p := range phases {
				if wanted(p.name) {
					p.play(tw, r)
				}
			}
		})
	}
	if wanted("vips") {
		inSimulation(t, size, simulated, out, func(tw *simulation, r *report) {
			tw.storm(1, 10*time.Second, r)
			tw.vips(r)
		})
	}
	if wanted("many") {
		inSimulation(t, size, simulated, out, func(tw *simulation, r *report) { tw.storm(many, 10*time.Second, r) })
	}
}

// inSimulation runs a simulation of its own, in virtual time.
func inSimulation(t *testing.T, size int, simulated bool, out io.Writer, f func(*simulation, *report)) {
	synctest.Test(t, func(t *testing.T) {
		tw := newSimulation(t, size, simulated)
		defer tw.close()
		f(tw, newReport(tw, out))
	})
}
