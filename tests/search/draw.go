package search

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Draw draws a plan from a seed.
func Draw(seed uint64) Plan {
	d := &drawing{Rand: rand.New(rand.NewPCG(seed, 2)), plan: Plan{Seed: seed, Nodes: 2}}
	if !d.often(2) {
		d.plan.Nodes += d.IntN(4)
	}
	if d.often(8) {
		d.plan.Nodes = 2 + d.IntN(12)
	}
	d.plan.Reporter = d.often(4)
	for n := range d.plan.Nodes {
		if d.names = append(d.names, fmt.Sprint("n", n+1)); d.often(8) {
			d.plan.Next = append(d.plan.Next, d.names[n])
		}
	}
	d.end = time.Minute + time.Duration(d.Int64N(int64(4*time.Minute)))
	d.pods()
	if !d.often(4) { // some worlds have no faults
		d.faults()
	}
	d.Rand = rand.New(rand.NewPCG(seed, 3)) // what is above is the same in a world with liars
	if d.often(5) {
		for range 1 + d.IntN(3)/2 {
			d.liar()
		}
	}
	d.Rand = rand.New(rand.NewPCG(seed, 4))
	if d.often(4) {
		for i := range d.plan.Events {
			if e := &d.plan.Events[i]; e.Verb == "pod" && !d.often(3) {
				e.Args = append(e.Args, "vm="+[]string{"db", "web"}[d.IntN(4)/3])
			}
		}
	}
	slices.SortStableFunc(d.plan.Events, func(a, b Event) int { return int(a.At - b.At) })
	return d.plan
}

type drawing struct {
	*rand.Rand
	plan  Plan
	names []string
	end   time.Duration
}

// often is true once in n times.
func (d *drawing) often(n int) bool { return d.IntN(n) == 0 }

func (d *drawing) node() string { return d.names[d.IntN(len(d.names))] }

// in returns a time from least to most, in milliseconds.
func (d *drawing) in(least, most time.Duration) time.Duration {
	return (least + time.Duration(d.Int64N(max(int64(most-least), 1)))).Truncate(time.Millisecond)
}

func (d *drawing) add(at time.Duration, who, verb string, args ...string) {
	if at < d.end {
		d.plan.Events = append(d.plan.Events, Event{at.Truncate(time.Millisecond), who, verb, args})
	}
}

// pods draws the lives of pods, which share few addresses.
func (d *drawing) pods() {
	addresses, owners := 1+d.IntN(3), d.IntN(3)
	for n := range 2 + d.IntN(2*d.plan.Nodes) {
		at, node, name := d.in(0, d.end/2), d.node(), string(rune('a'+n))
		args := []string{name, fmt.Sprintf("10.0.0.%d", 1+d.IntN(addresses))}
		switch d.IntN(5) {
		case 0:
			args = append(args, "slow="+seconds(d.in(10*time.Millisecond, answersWithin)))
		case 1:
			if d.often(2) {
				args = append(args, "slow="+seconds(d.in(slowFrom, 1900*time.Millisecond)))
			}
		}
		if d.often(3) {
			args = append(args, "quiet")
		}
		if d.often(8) {
			args = append(args, "l3")
		}
		if owners > 0 {
			args = append(args, []string{"given=no", "given=yes", "given=no"}[d.IntN(owners+1)])
		}
		d.add(at, node, "pod", args...)
		d.life(at, node, name)
	}
}

// life draws what happens to a pod.
func (d *drawing) life(at time.Duration, node, name string) {
	pause := func() time.Duration {
		return d.in(50*time.Millisecond, []time.Duration{time.Second, 4 * time.Second, time.Minute}[d.IntN(3)])
	}
	for range d.IntN(4) {
		at += pause()
		switch d.IntN(6) {
		case 0:
			d.add(at, node, "mute", name, seconds(pause()))
		case 1:
			d.add(at, node, "end", name)
			return
		case 2:
			d.add(at, node, "vanish", name)
			return
		case 3: // it comes and goes
			period := d.in(100*time.Millisecond, 3*time.Second)
			for range 1 + d.IntN(8) {
				d.add(at, node, "drop", name)
				d.add(at+period, node, "take", name)
				at += 2 * period
			}
		default:
			d.add(at, node, "drop", name)
			at += pause()
			d.add(at, node, "take", name)
		}
	}
}

// faults draws what happens to machines and the network: few kinds in one world.
func (d *drawing) faults() {
	kinds := []func(at time.Duration){
		func(at time.Duration) {
			d.add(at, d.node(), "stall", seconds(d.in(50*time.Millisecond, 2*time.Second)))
		},
		func(at time.Duration) {
			lasts := d.in(2*time.Second, 90*time.Second)
			if d.often(6) { // for so long that it is forgotten
				lasts = d.in(5*time.Minute, 7*time.Minute)
			}
			d.add(at, d.node(), "freeze", seconds(lasts))
		},
		func(at time.Duration) { // a crash, or several
			node, end := d.node(), []string{"kill", "kill", "stop"}[d.IntN(3)]
			for range 1 + d.IntN(2)*d.IntN(5) {
				d.add(at, node, end)
				at += d.in(time.Second, []time.Duration{10 * time.Second, 2 * time.Minute}[d.IntN(2)])
				args := []string{}
				if d.often(4) {
					args = []string{"fresh"}
				}
				d.add(at, node, "start", args...)
				at += d.in(time.Second, 20*time.Second)
			}
		},
		func(at time.Duration) { // all agents are upgraded, one after the other
			for _, n := range d.names {
				d.add(at, n, "stop")
				at += d.in(time.Second, 6*time.Second)
				d.add(at, n, "start")
				at += d.in(0, 4*time.Second)
			}
			d.add(at+d.in(0, 30*time.Second), d.node(), "pod", "new", "10.0.0.1")
		},
		func(at time.Duration) { // all agents but one crash together
			spared := d.node()
			for _, n := range d.names {
				if n != spared {
					d.add(at, n, "kill")
					d.add(at+d.in(time.Second, 4*time.Second), n, "start")
				}
			}
			d.add(at+d.in(6*time.Second, 40*time.Second), d.node(), "pod", "new", "10.0.0.1")
		},
		func(at time.Duration) { // an agent that ends in order, and begins late or not
			node := d.node()
			d.add(at, node, "stop")
			if d.often(2) {
				d.add(at+d.in(30*time.Second, 3*time.Minute), node, "start")
			}
		},
		func(at time.Duration) { d.add(at, d.node(), "reboot", seconds(d.in(time.Second, time.Minute))) },
		func(at time.Duration) {
			d.add(at, "-", "loss", fmt.Sprintf("0.%02d", 1+d.IntN(50)), seconds(d.in(time.Second, time.Minute)))
		},
		func(at time.Duration) {
			d.add(at, "-", "copy", fmt.Sprintf("0.%02d", 1+d.IntN(50)), seconds(d.in(time.Second, time.Minute)))
		},
		func(at time.Duration) {
			d.add(at, "-", "late", fmt.Sprintf("0.%02d", 1+d.IntN(50)), seconds(d.in(time.Second, time.Minute)))
		},
		func(at time.Duration) { d.add(at, d.node(), "deaf", d.node(), seconds(d.in(time.Second, time.Minute))) },
		func(at time.Duration) {
			d.add(at, d.node(), "cut", d.others(), seconds(d.in(time.Second, time.Minute)))
		},
		func(at time.Duration) { // a key that is rotated at one node after the other
			for _, n := range d.names {
				d.add(at, n, "cut", "*", seconds(d.in(time.Second, 5*time.Second)))
				at += d.in(time.Second, 5*time.Second)
			}
		},
		func(at time.Duration) {
			if a, b := d.node(), d.node(); a != b {
				d.add(at, a, "namesake", b)
			}
		},
	}
	if d.plan.Reporter {
		kinds = append(kinds, func(at time.Duration) {
			d.add(at, "reporter", []string{"kill", "stop"}[d.IntN(2)])
			d.add(at+d.in(time.Second, 2*time.Minute), "reporter", "start")
		})
	}
	d.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, fault := range kinds[:1+d.IntN(3)] {
		for range 1 + d.IntN(3) {
			fault(d.in(0, d.end*3/4))
		}
	}
}

// others are some machines, or all.
func (d *drawing) others() string {
	if d.often(3) {
		return "*"
	}
	list := slices.Clone(d.names)
	d.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return strings.Join(list[:1+d.IntN(len(list))], ",")
}

// liar adds a machine that lies.
func (d *drawing) liar() {
	d.plan.Nodes++
	who, honest := fmt.Sprint("n", d.plan.Nodes), d.node()
	pods := slices.DeleteFunc(slices.Clone(d.plan.Events), func(e Event) bool { return e.Verb != "pod" })
	address := func() string { return append(pods, Event{Args: []string{"", "10.0.0.9"}})[d.IntN(len(pods)+1)].arg(1) }
	lasts := func() string {
		return seconds(d.in(time.Second, []time.Duration{10 * time.Second, 2 * time.Minute}[d.IntN(2)]))
	}
	one := func(of []string) string { return append(of[:len(of):len(of)], "any", "any")[d.IntN(len(of)+2)] }
	kinds := []func(at time.Duration){
		func(at time.Duration) {
			d.add(at, who, "keep", one(keeping), seconds(d.in(time.Second, 10*time.Minute)))
		},
		func(at time.Duration) { d.add(at, who, "ask", lasts()) },
		func(at time.Duration) { d.add(at, who, "forge", lasts()) },
		func(at time.Duration) { d.add(at, who, "flood", seconds(d.in(100*time.Millisecond, 2*time.Second))) },
		func(at time.Duration) { d.add(at, who, "pod", fmt.Sprint("l", d.IntN(3)), address()) },
		func(at time.Duration) {
			begins := func(e Event) bool {
				return slices.Contains([]string{"kill", "stop", "start", "reboot", "freeze", "namesake"}, e.Verb)
			}
			if args := []string{honest, "boot"}; slices.ContainsFunc(d.plan.Events, begins) || d.often(2) {
				d.add(at, who, "namesake", honest)
			} else {
				d.add(max(at, 20*time.Second), who, "namesake", args...)
			}
		},
		func(at time.Duration) {
			for range 1 + d.IntN(2)*d.IntN(8) {
				d.add(at, who, []string{"kill", "stop"}[d.IntN(2)])
				at += d.in(time.Second, []time.Duration{4 * time.Second, time.Minute}[d.IntN(2)])
				d.add(at, who, "start")
				at += d.in(2*time.Second, 10*time.Second)
			}
		},
	}
	for range d.IntN(5) {
		at, ip := d.in(0, d.end/2), address()
		args := []string{
			ip, "answers=" + one(answering), "as=" + []string{"announced", "announced", "data", "configured", "claimed", "host"}[d.IntN(6)],
			"age=" + seconds(d.in(0, time.Hour)),
		}
		if d.often(3) {
			args = append(args, fmt.Sprint("holders=", 2+d.IntN(8)))
		}
		d.add(at, who, "claim", args...)
		for range d.IntN(3) {
			at += d.in(time.Second, 30*time.Second)
			d.add(at, who, "retract", ip)
			at += d.in(0, 10*time.Second)
			d.add(at, who, "claim", args...)
		}
	}
	d.add(0, who, "tell", one(telling))
	for range d.IntN(6) {
		kinds[d.IntN(len(kinds))](d.in(0, d.end*3/4))
	}
}
