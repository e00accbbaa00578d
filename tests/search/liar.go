package search

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// liar is what a machine that lies does beside its agent, which is a real one. It changes what that hears and says, and says more. It has
// the key and an address, so it can send as itself only.
type liar struct {
	*machine
	claims    []*claim
	netns     uint64 // of the last holder that it invented
	seq       uint64
	turn      int
	heard     map[*agent]uint64 // the last number of a message, for guesses
	keeps     string            // how it lies as a keeper, until keepsTill
	keepsTill time.Duration
	forges    time.Duration // until then
	tells     string        // how it lies to commands
}

// claim is an address that a liar says to have.
type claim struct {
	key      detector.Key
	netns    []uint64
	evidence detector.Evidence
	age      time.Duration
	answers  string
	over     bool
}

// lies are the verbs of liars.
var lies = map[string]func(*liar, Event){
	"claim":   (*liar).claim,
	"retract": func(l *liar, e Event) { l.retract(keyOf(e.arg(0))) },
	"keep":    func(l *liar, e Event) { l.keeps, l.keepsTill = e.arg(0), l.w.now+e.duration(1) },
	"ask": func(l *liar, e Event) {
		l.during(e.duration(0), 200*time.Millisecond, func() { l.ask(l.holders()) })
	},
	"forge": func(l *liar, e Event) {
		l.forges = l.w.now + e.duration(0)
		l.during(e.duration(0), time.Second, l.forge)
	},
	"flood": func(l *liar, e Event) { l.during(e.duration(0), 4*time.Millisecond, l.flood) },
	"tell":  func(l *liar, e Event) { l.tells = e.arg(0) },
}

// How a liar answers probe requests and keeps leases. "any" is another one each time.
var (
	answering = []string{"once", "late", "turns", "wild", "gone", "unanswered", "forwards", "refused", "never"}
	keeping   = []string{"silent", "deaf", "hides", "invents"}
)

func keyOf(ip string) detector.Key {
	at, _ := netip.ParseAddr(ip)
	return detector.Key{Network: "default", IP: at}
}

// ago is a time as it travels.
func ago(age time.Duration) time.Time { return time.Unix(0, 0).Add(-age) }

// sent has a liar send a packet, whatever is in it. Longer ones than a datagram do not arrive.
func (l *liar) sent(to *agent, p wire.Packet) {
	if b := wire.Marshal(p); l.agent != nil && !l.frozen && len(b) <= wire.MaxPacket {
		l.w.network.send(l.agent, to, b)
	}
}

func (l *liar) next() uint64 {
	l.seq++
	return l.seq
}

// others are the other members.
func (l *liar) others() []*agent {
	return slices.DeleteFunc(l.w.agents(), func(a *agent) bool { return a.m == l.machine })
}

// holders are the lives of all honest pods now. A member with the key can read who has which address.
func (l *liar) holders() []*life {
	return slices.DeleteFunc(slices.Clone(l.w.truth.lives), func(o *life) bool { return o.to != 0 })
}

// during does something again and again for a while.
func (l *liar) during(lasts, every time.Duration, do func()) {
	until := l.w.now + lasts
	var again func()
	again = func() {
		if do(); l.w.now < until {
			l.w.after(l.w.between(every/2, 2*every), again)
		}
	}
	again()
}

// claim claims an address by holders of its own.
func (l *liar) claim(e Event) {
	c := &claim{key: keyOf(e.arg(0)), answers: cmp.Or(e.option("answers"), "once"), evidence: detector.Announced}
	if as := e.option("as"); as != "" {
		_ = c.evidence.UnmarshalText([]byte(as)) // it never fails
	}
	c.age, _ = time.ParseDuration(e.option("age"))
	many, _ := strconv.Atoi(e.option("holders"))
	for range max(many, 1) {
		c.netns = append(c.netns, l.invented())
	}
	if p := l.pod(e.option("pod")); p != nil {
		c.netns[0] = p.netns
	}
	l.claims = append(l.claims, c)
	l.repeat(c)
}

func (l *liar) invented() uint64 {
	l.netns++
	return 1<<40 + l.netns
}

// repeat sends the leases of a claim to all, from time to time.
func (l *liar) repeat(c *claim) {
	if c.over {
		return
	}
	for _, netns := range c.netns {
		for _, to := range l.others() {
			l.sent(to, wire.Packet{Leases: []wire.Lease{{Seq: l.next(), Key: c.key, Binding: l.binding(c, netns)}}})
		}
	}
	l.w.after(l.w.between(300*time.Millisecond, 30*time.Second), func() { l.repeat(c) })
}

// retract withdraws what is claimed of an address.
func (l *liar) retract(key detector.Key) {
	for _, c := range l.claims {
		if c.over || c.key != key {
			continue
		}
		c.over = true
		for _, netns := range c.netns {
			for _, to := range l.others() {
				l.sent(to, wire.Packet{Leases: []wire.Lease{{Seq: l.next(), Key: key, Binding: l.binding(c, netns), Gone: true}}})
			}
		}
	}
}

// binding is a holder with all that its node may say of it.
func (l *liar) binding(c *claim, netns uint64) cluster.Binding {
	name := fmt.Sprint(l.label, "-claim-", netns&0xffff)
	return cluster.Binding{
		Holder: detector.Holder{
			ID: detector.HolderID{Netns: netns}, InterfaceName: "eth0", NetnsName: name, CreatedAt: ago(c.age), Given: detector.Given(l.turn % 3),
			Pod: detector.Pod{Namespace: "search", Name: name, UID: name},
		},
		Evidence: c.evidence, FirstSeen: ago(c.age), LastSeen: ago(0), Life: 1,
	}
}

// hears takes what reaches the machine, and returns what its agent gets of it.
func (l *liar) hears(from *agent, payload []byte) []byte {
	var p wire.Packet
	if len(l.claims) == 0 && l.w.now >= max(l.forges, l.keepsTill) {
		return payload
	}
	if _, err := wire.Unmarshal(payload, &p); err != nil {
		return payload
	}
	p.Requests = slices.DeleteFunc(p.Requests, func(r wire.ProbeRequest) bool {
		if l.heard[from] = r.ID; l.w.now < l.forges { // others are asked at the same moment
			l.forgeReplies(from, r.Key)
		}
		i := slices.IndexFunc(l.claims, func(c *claim) bool { return c.key == r.Key && slices.Contains(c.netns, r.Holder.Netns) })
		if i >= 0 {
			l.reply(from, r, l.claims[i])
		}
		return i >= 0
	})
	if l.keepsAs("deaf") { // it acknowledges, and keeps nothing
		for _, lease := range p.Leases {
			l.sent(from, wire.Packet{Acks: []wire.Ack{{Seq: lease.Seq}}})
		}
		p.Leases = nil
	}
	return wire.Marshal(p)
}

// reply answers a probe request about a holder that it claims.
func (l *liar) reply(to *agent, r wire.ProbeRequest, c *claim) {
	how := c.answers
	switch l.turn++; how {
	case "any":
		how = answering[l.w.random.IntN(len(answering))]
	case "turns":
		how = []string{"once", "unanswered", "once", "gone"}[l.turn%4]
	}
	a := wire.ProbeReply{ID: r.ID, Key: r.Key, Binding: l.binding(c, r.Holder.Netns), Answered: ago(0), Outcome: map[string]detector.Outcome{
		"gone": detector.Gone, "unanswered": detector.Unanswered, "forwards": detector.Forwards, "refused": detector.Refused, "never": detector.Unreachable,
	}[how]}
	wait := l.w.between(0, 30*time.Millisecond)
	switch how {
	case "once":
		a.Outcome = detector.Answered
	case "late":
		a.Outcome, wait = detector.Answered, l.w.between(50*time.Millisecond, 2*time.Second)
	case "refused":
		if a.RetryAt = ago(-l.w.between(0, 5*time.Second)); l.w.chance(0.3) {
			a.RetryAt = ago(l.w.between(-1000*time.Hour, time.Hour))
		}
	case "wild":
		a.Outcome, a.Answered = detector.Answered, ago(l.w.between(-time.Hour, 3*time.Second))
		a.Binding.Evidence, a.Binding.Life = detector.Evidence(l.w.random.IntN(9)), l.w.random.Uint64()
		a.Binding.FirstSeen, a.Binding.Occurrences = ago(l.w.between(-time.Hour, 1000*time.Hour)), l.w.random.IntN(1<<40)
	}
	if a.Outcome != detector.Unreachable {
		l.after(wait, func() { l.sent(to, wire.Packet{Replies: []wire.ProbeReply{a}}) })
	}
}

func (l *liar) keepsAs(how string) bool {
	if l.w.now >= l.keepsTill {
		return false
	}
	return l.keeps == how || l.keeps == "any" && keeping[int(l.w.now/time.Second)%len(keeping)] == how
}

// says changes what the agent of the machine says as a keeper.
func (l *liar) says(payload []byte) []byte {
	var p wire.Packet
	if _, err := wire.Unmarshal(payload, &p); err != nil {
		return payload
	}
	switch {
	case l.keepsAs("silent"):
		p.Acks, p.Notices = nil, nil
	case l.keepsAs("hides"):
		p.Notices = nil
		for i := range p.Acks {
			p.Acks[i].Others = nil
		}
	case l.keepsAs("invents"):
		for i := range p.Acks {
			p.Acks[i].Others, p.Acks[i].Total = l.invent(), l.w.random.IntN(100)
		}
		for i := range p.Notices {
			p.Notices[i].Others = l.invent()
		}
	default:
		return payload
	}
	return wire.Marshal(p)
}

// invent returns holders of other nodes that they do not have, or have of other addresses, of its own, and of nodes that there are not.
func (l *liar) invent() (list []cluster.Binding) {
	for range 1 + l.w.random.IntN(4) {
		b := cluster.Binding{
			Evidence: detector.Claimed + detector.Evidence(l.w.random.IntN(int(detector.Host-detector.Claimed)+1)), FirstSeen: ago(l.w.between(0, time.Hour)),
			LastSeen: ago(l.w.between(-time.Minute, 6*time.Minute)), Occurrences: l.w.random.IntN(4),
		}
		if l.w.chance(0.1) {
			b.Occurrences = 1<<30 + l.w.random.IntN(3) - 1 // about the most that is believed
		}
		id := &b.Holder.ID
		*id = detector.HolderID{Node: "ghost/boot", Netns: l.invented()}
		m := l.w.machines[l.w.random.IntN(len(l.w.machines))]
		if l.w.chance(0.8) {
			id.Node = m.id()
		}
		if len(m.pods) > 0 && l.w.chance(0.5) {
			id.Netns = m.pods[l.w.random.IntN(len(m.pods))].netns
		}
		list = append(list, b)
	}
	return list
}

// ask asks nodes about their holders, and names holders of its own as it does.
func (l *liar) ask(about []*life) {
	for _, o := range about {
		if a := o.m.agent; a != nil && a.m != l.machine {
			l.sent(a, wire.Packet{Requests: []wire.ProbeRequest{{
				ID: l.next(), Key: o.key, Holder: detector.HolderID{Node: o.node, Netns: o.netns}, Others: l.invent(),
			}}})
		}
	}
}

// forge says what only others may: that their holders are gone or answer, and acknowledges what it did not get. It sends notices, too.
func (l *liar) forge() {
	for _, o := range l.holders() {
		b := cluster.Binding{Holder: detector.Holder{ID: detector.HolderID{Node: o.node, Netns: o.netns}}, Evidence: detector.Announced}
		for _, to := range l.others() {
			p := wire.Packet{
				Leases:  []wire.Lease{{Seq: l.next(), Key: o.key, Binding: b, Gone: true}},
				Notices: []wire.Notice{{Seq: l.next(), Key: o.key, Others: l.invent()}},
				Resends: []wire.Resend{{Seq: l.next()}},
			}
			for n := range uint64(3) {
				p.Replies = append(p.Replies, wire.ProbeReply{ID: l.heard[to] + n, Key: o.key, Outcome: detector.Outcome(1 + l.w.random.IntN(6)), Binding: b})
				p.Acks = append(p.Acks, wire.Ack{Seq: l.heard[to] + n, Others: []cluster.Binding{b}})
			}
			l.sent(to, p)
		}
	}
}

// forgeReplies answers probe requests that a node may have sent to others.
func (l *liar) forgeReplies(to *agent, key detector.Key) {
	for _, o := range l.w.truth.lives {
		if o.key != key {
			continue
		}
		var p wire.Packet
		for n := range uint64(5) {
			p.Replies = append(p.Replies, wire.ProbeReply{
				ID: l.heard[to] + n - 2, Key: key, Outcome: detector.Outcome(1 + l.w.random.IntN(4)), Answered: ago(0), Binding: cluster.Binding{
					Holder: detector.Holder{ID: detector.HolderID{Node: o.node, Netns: o.netns}}, Evidence: detector.Announced, FirstSeen: ago(time.Hour), Life: 1,
				},
			})
		}
		l.sent(to, p)
	}
}

// flood sends all kinds of messages to one member.
func (l *liar) flood() {
	others := l.others()
	if len(others) == 0 {
		return
	}
	to := others[l.w.random.IntN(len(others))]
	key := keyOf(fmt.Sprint("10.0.", l.w.random.IntN(2)*l.w.random.IntN(256), ".", l.w.random.IntN(8)))
	b := l.invent()[0]
	l.sent(to, wire.Packet{
		Leases: []wire.Lease{
			{Seq: l.next(), Key: key, Binding: b, Gone: l.w.chance(0.3)}, {Seq: l.next(), Key: key, Binding: b, Gone: l.w.chance(0.3)},
		},
		Notices:  []wire.Notice{{Seq: l.next(), Key: key, Others: l.invent()}},
		Requests: []wire.ProbeRequest{{ID: l.next(), Key: key, Holder: b.Holder.ID, Others: l.invent()}},
		Replies:  []wire.ProbeReply{{ID: l.seq, Key: key, Outcome: detector.Answered, Binding: b}},
		Resends:  []wire.Resend{{Seq: l.next()}},
	})
}

// isLiars reports whether a NodeID is that of a machine that lies, of any boot.
func (w *world) isLiars(id string) bool {
	return slices.ContainsFunc(w.machines, func(m *machine) bool { return m.liar != nil && strings.HasPrefix(cluster.BootID(id), m.label+"-boot-") })
}

// liars is how many machines lie.
func (w *world) liars() (n int) {
	for _, m := range w.machines {
		if m.liar != nil {
			n++
		}
	}
	return n
}
