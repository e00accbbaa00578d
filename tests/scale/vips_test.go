package scale

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/detector"
)

const (
	// The limits of agent/wire: questions, and answers that wait for the agent.
	questionsPerSecond, questionsBurst, maxHeard = 20, 60, 256
	// questionsGoal is how many questions a node may ask in a minute, whatever other nodes have.
	questionsGoal = 60*questionsPerSecond + questionsBurst
	// nodeOverlap is the default of --vip-overlap.
	nodeOverlap = 10 * time.Second
)

// segment is what joins the nodes: who answers there for an address.
type segment struct {
	mu      sync.Mutex
	holders map[detector.Key][]*agent
}

// answers returns the MACs of the others that have an address, as many as the agent would hear.
func (s *segment) answers(key detector.Key, asker *agent) (macs []detector.MAC) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.holders[key] {
		if a != asker && len(macs) < maxHeard {
			macs = append(macs, a.mac())
		}
	}
	return macs
}

// mac is that of the node's uplink.
func (a *agent) mac() detector.MAC {
	at := a.endpoint.Addr().Addr().As4()
	return detector.MAC{2, 1, at[0], at[1], at[2], at[3]}
}

// gain gives the node an address on its uplink.
func (a *agent) gain(s *segment, key detector.Key) {
	s.mu.Lock()
	s.holders[key] = append(s.holders[key], a)
	s.mu.Unlock()
	a.do(func() {
		a.segment = s
		a.vips = append(a.vips, key)
		a.seeOwn(key)
	})
}

// lose takes it away again.
func (a *agent) lose(s *segment, key detector.Key) {
	s.mu.Lock()
	s.holders[key] = slices.DeleteFunc(s.holders[key], func(o *agent) bool { return o == a })
	s.mu.Unlock()
	a.do(func() {
		a.vips = slices.DeleteFunc(a.vips, func(k detector.Key) bool { return k == key })
		now := time.Now()
		a.exchange.Apply(a.detector.Withdraw(key, a.host(), "the address left the node", now), now)
	})
}

// ask asks on the segment who else has an address of the node.
func (a *agent) ask(p exchange.Probe, now time.Time) {
	if !a.questions.AllowN(now, 1) {
		a.count.unasked.Add(1)
		a.exchange.Probed(p, detector.ProbeRefusal{Reason: "too many questions", Until: now.Add(time.Second)}, now)
		return
	}
	a.count.questions.Add(1)
	a.exchange.Probed(p, detector.ProbeRefusal{}, now)
	for _, mac := range a.segment.answers(p.Key, a) {
		a.exchange.Heard(p.Key, mac, now)
	}
}

// vipKey is a virtual address of node i, the last one that of all nodes.
func (tw *simulation) vipKey(i int) detector.Key {
	return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 90, byte(i >> 8), byte(i)})}
}

// vips gives each node a virtual address on its uplink, then a few of them to a second node, then one to all nodes, as an anycast address is that
// nobody has declared. What nodes ask and send is to stay within bounds.
func (tw *simulation) vips(r *report) {
	s := &segment{holders: make(map[detector.Key][]*agent)}
	r.begin("each node gets a virtual address")
	tw.asked()
	for i, a := range tw.agents {
		a.gain(s, tw.vipKey(i))
	}
	time.Sleep(time.Minute)
	r.questions(time.Minute)
	r.rate()
	r.end()

	const twice = 20
	r.begin(fmt.Sprintf("%d of them are on two nodes", twice))
	tw.asked()
	var list []*duplicate
	for i := range twice {
		list = append(list, tw.watch.expect(tw.vipKey(2*i), 2))
		tw.agents[2*i+1].gain(s, tw.vipKey(2*i))
	}
	tw.await(list, 30*time.Second)
	time.Sleep(30 * time.Second)
	r.foundIn(list, goal{suspected: time.Second, confirmed: nodeOverlap + time.Second})
	r.questions(0)
	for i := range twice {
		tw.agents[2*i+1].lose(s, tw.vipKey(2*i))
	}
	time.Sleep(20 * time.Second)
	r.end()

	r.begin("all nodes have one address on their uplinks")
	tw.asked()
	all := tw.vipKey(len(tw.agents))
	d := tw.watch.expect(all, len(tw.agents))
	for _, a := range tw.agents {
		a.gain(s, all)
	}
	for minute := range 4 {
		if minute == 3 {
			r.reset() // the last one is what it costs as long as it lasts
		}
		time.Sleep(time.Minute)
		r.questions(time.Minute)
	}
	tw.watch.mu.Lock()
	r.row("nodes that know of it", "%d suspected, %d confirmed, of %d", len(d.suspected), len(d.confirmed), len(tw.agents))
	tw.watch.mu.Unlock()
	r.sent()
	r.rate()
	r.end()
}

// asked returns what the nodes have asked on the segment since the last call, sorted, and how often they might not.
func (tw *simulation) asked() (questions []int64, unasked int64) {
	for _, a := range tw.agents {
		questions = append(questions, a.count.questions.Swap(0))
		unasked += a.count.unasked.Swap(0)
	}
	slices.Sort(questions)
	return questions, unasked
}

// questions reports what the nodes have asked within a time, and fails the test if that is too much; 0 is any time.
func (r *report) questions(within time.Duration) {
	asked, unasked := r.simulation.asked()
	sum, most := int64(0), asked[len(asked)-1]
	for _, n := range asked {
		sum += n
	}
	r.row("questions of a node on the segment", "%.2f, of the busiest %d (goal %d a minute); %d put off", float64(sum)/float64(len(asked)), most, questionsGoal, unasked)
	if within == time.Minute && most > questionsGoal {
		r.simulation.t.Errorf("a node has asked %d times in a minute, want %d at most", most, questionsGoal)
	}
}
