package detector

import (
	"bufio"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/internal/schedule"
)

// A world is a Detector with some simulated holders. A holder answers each probe for an address that
// it has, 0.1 ms after the probe. A script says what happens, in lines of
//
//	TIME HOLDER VERB [ARGUMENT …] [ADDRESS]
//
// TIME counts from the start. ADDRESS is 10.0.0.1 if it is missing. HOLDER is
//
//	a, b, r, …  a pod on this node; its first line makes it
//	host…       a node; uplink… on the segment that joins the nodes, bridge… as the gateway of pods
//	b@n2        a pod on node n2: keepers send its sightings, its node sends its answers
//
// The verbs, "it" being the holder:
//
//	takes              it has the address from now on, and sends nothing
//	announces          it has the address and announces it (a node: lists it)
//	sends              it has the address and sends IP packets from it
//	configures         it has the address from now on, and cannot be asked: its kernel is
//	answers            it answers a request that is not ours
//	answers-late       it answers one of our probes, far too late
//	forges             it announces an address that it does not have
//	spoofs             it sends IP packets from an address that it does not have
//	forwards           it forwards packets of the address; the agent knows that it does not have it
//	proxies            from now on it answers probes for addresses that it does not have
//	loses              it does not have the address any more; the agent knows it
//	drops              it does not have the address any more; the agent does not know it
//	gone               its interface is gone, or its node withdraws it
//	dies               remote: it is gone, and the withdrawal does not arrive
//	mute, unmute       it does not answer probes; it answers again
//	slow               from now on it answers 50 ms later
//	unreachable        probes to it are lost and not reported, or its node does not reply
//	reachable          the end of that
//	guarded [5s] WHY   a guard forbids to probe it, for 5 s or until "unguarded"
//	unguarded          the end of that
//	resolves           remote: its node knows as many resolved conflicts as there were events
//	changes-mac        it has another MAC; restores-mac: the first one again
//	changes-interface  it goes on with another interface
//	changes-netns      its interface leads into another netns, which is another holder
//	restarts           the agent restarts with what it saved; HOLDER is "agent"
//	shares, unshares   the address is declared shared, or not any more; HOLDER is "agent"
type world struct {
	t           *testing.T
	d           *Detector
	start       time.Time
	now         time.Time
	holders     map[string]*actor
	pending     []report // in flight, by time
	probed      []sentProbe
	limit       func() bool // when set, whether the rate allows a probe
	proof       proof       // when set, it checks each confirmation
	lose        func() bool // when set, whether a probe is lost on the way
	shared      map[Key]bool
	born        time.Time // when the present agent started
	events      []Event
	probeRemote func(Probe)       // when set, probes remote holders
	leases      map[leaseID]lease // what TakeChanges returned
	remembered  map[recorded]bool // what the observer does not report again for a while
}

// recorded is an address that the observer has reported.
type recorded struct {
	key   Key
	iface Interface
}

type actor struct {
	name    string
	id      HolderID
	iface   Interface
	has     map[netip.Addr]bool
	claims  bool      // it has the addresses on other devices
	listed  bool      // what its kernel has configured takes the place of its answers
	mute    bool      // does not answer
	proxies bool      // answers for what it does not have
	lost    bool      // probes to it vanish and are never reported, or its node is out of reach
	dead    bool      // remote: its node knows that it is gone
	guard   string    // why it must not be probed
	until   time.Time // the end of guard; zero for none
	mac     byte
	slow    time.Duration // how much later than others it answers
	pod     Pod
	vm      VM
}

// report is the result of a probe.
type report struct {
	at   time.Time
	from HolderID
	do   func()
}

type sentProbe struct {
	at time.Duration
	s  Probe
}

func newWorld(t *testing.T, opts Options) *world {
	t.Helper()
	opts.Node = cmp.Or(opts.Node, "n1")
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &world{t: t, d: New(opts), start: start, now: start, holders: map[string]*actor{}}
}

const (
	delay       = 100 * time.Microsecond
	silentAfter = time.Second             // another node replies that its holder does not answer
	lostAfter   = 1800 * time.Millisecond // no reply: another node is unreachable
)

var defaultIP = netip.MustParseAddr("10.0.0.1")

func (w *world) actor(name string) *actor {
	a := w.holders[name]
	if a == nil {
		n := uint32(len(w.holders) + 1)
		a = &actor{
			name: name, id: HolderID{Node: w.d.table.opts.Node, Netns: uint64(4096 + n)},
			iface: Interface{n, n}, has: map[netip.Addr]bool{}, mac: byte(n),
		}
		if _, node, remote := strings.Cut(name, "@"); remote {
			a.id.Node = node + "/boot"
		}
		w.holders[name] = a
	}
	return a
}

func (w *world) byID(id HolderID) *actor {
	for _, a := range w.holders {
		if a.id == id {
			return a
		}
	}
	return &actor{id: id, mute: true} // known from before a restart
}

func (a *actor) sighting(ip netip.Addr, ev Evidence, at time.Time) Sighting {
	return Sighting{
		Key: Key{"default", ip}, Listed: ev == Host && strings.Contains(a.name, "@"),
		Holder: Holder{
			ID: a.id, Place: a.place(), Interface: a.iface, InterfaceName: fmt.Sprintf("veth%d", a.iface.Ifindex),
			MAC: MAC{2, 0, 0, 0, 0, a.mac}, NetnsName: a.name, Pod: a.pod, Sandbox: Sandbox{VM: a.vm},
		},
		Evidence: ev, At: at,
	}
}

// place returns where on its node a node's address is.
func (a *actor) place() Place {
	switch {
	case strings.HasPrefix(a.name, "uplink"):
		return PlaceUplink
	case strings.HasPrefix(a.name, "bridge"):
		return PlaceBridge
	}
	return 0
}

// evidence returns the evidence of what a holder announces.
func (a *actor) evidence() Evidence {
	if strings.HasPrefix(a.name, "host") || a.place() != 0 {
		return Host
	}
	if a.claims {
		return Claimed
	}
	if a.listed {
		return Configured
	}
	return Announced
}

func (w *world) do(line string) {
	w.t.Helper()
	f := strings.Fields(line)
	a, verb, args := w.actor(f[1]), f[2], f[3:]
	ip := defaultIP
	if len(args) > 0 {
		if p, err := netip.ParseAddr(args[len(args)-1]); err == nil {
			ip, args = p, args[:len(args)-1]
		}
	}
	see := func(ev Evidence) { w.observe(a.sighting(ip, ev, w.now)) }
	switch verb {
	case "takes":
		a.has[ip] = true
	case "configures":
		a.has[ip], a.listed = true, true
	case "announces":
		a.has[ip], a.dead = true, false
		see(a.evidence())
	case "claims":
		a.has[ip], a.claims = true, true
		see(Claimed)
	case "forges-a-claim":
		a.claims = true
		see(Claimed)
	case "forges":
		see(Announced)
	case "sends":
		a.has[ip] = true
		see(Data)
	case "spoofs":
		see(Data)
	case "forwards":
		see(Forwarded)
	case "answers":
		s := a.sighting(ip, a.evidence(), w.now)
		s.Answer, s.Overheard = true, true
		w.observe(s)
	case "answers-late":
		s := a.sighting(ip, a.evidence(), w.now)
		s.Late = 5 * time.Second
		w.observe(s)
	case "loses":
		delete(a.has, ip)
		w.apply(w.d.Withdraw(Key{"default", ip}, a.id, "address left the netns", w.now))
	case "drops":
		delete(a.has, ip)
	case "gone":
		w.gone(a)
	case "dies":
		clear(a.has)
		a.dead = true
	case "mute":
		a.mute = true
	case "slow":
		a.slow = 50 * time.Millisecond
	case "unmute":
		a.mute = false
	case "proxies":
		a.proxies = true
	case "unreachable":
		a.lost = true
	case "reachable":
		a.lost = false
	case "guarded":
		a.guard, a.until = strings.Join(args, " "), time.Time{}
		if until, err := time.ParseDuration(args[0]); err == nil {
			a.guard, a.until = strings.Join(args[1:], " "), w.now.Add(until)
		}
	case "unguarded":
		a.guard = ""
	case "resolves":
		s := a.sighting(ip, a.evidence(), w.now)
		s.Occurrences, s.FirstSeen = len(w.log()), w.now.Add(-time.Hour)
		w.observe(s)
	case "restores-mac":
		a.mac -= 100
	case "changes-mac":
		a.mac += 100
	case "changes-interface":
		a.iface.Ifindex += 100
	case "restarts":
		w.restart()
	case "shares", "unshares":
		if w.shared == nil {
			w.shared = map[Key]bool{}
		}
		w.shared[Key{"default", ip}] = verb == "shares"
		w.apply(w.d.SetShared(func(k Key) bool { return w.shared[k] }, w.now))
	case "changes-netns":
		a.id.Netns += 1000
	default:
		w.t.Fatalf("unknown verb in %q", line)
	}
}

// restart replaces the detector by one that restores its snapshot, and checks that nothing of it is lost.
func (w *world) restart() {
	w.t.Helper()
	left := w.d.Snapshot()
	w.d, w.pending, w.born, w.leases = New(w.d.table.opts), nil, w.now, nil
	w.remembered = nil
	w.d.SetShared(func(k Key) bool { return w.shared[k] }, w.now)
	fx, dropped := w.d.Restore(left, w.now)
	if dropped != 0 {
		w.t.Errorf("%d conflicts were dropped", dropped)
	}
	if diff := gocmp.Diff(left, w.d.Snapshot(), cmpIPs); diff != "" {
		w.t.Errorf("restored (-want +got):\n%s", diff)
	}
	w.apply(fx)
}

var cmpIPs = gocmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func (w *world) observe(s Sighting) {
	w.t.Helper()
	if w.proof != nil {
		w.proof.record(s, w.d.Conflicts(false))
	}
	w.apply(w.d.Observe(s, w.now))
	b := w.d.table.entries[s.Key].find(s.Holder.ID)
	if b == nil || b.remote || b.source(s.Holder.Interface) == nil {
		return // of another node, refused, or ended at once
	}
	if w.remembered == nil {
		w.remembered = map[recorded]bool{}
	}
	w.remembered[recorded{s.Key, s.Holder.Interface}] = true
}

// forget makes the observer forget the bindings that have ended. It returns an error if the observer still
// remembers an address that the detector does not know: it would not report it.
func (w *world) forget() error {
	for _, e := range w.d.TakeEnded() {
		delete(w.remembered, recorded{e.Key, e.Interface})
	}
	for r := range w.remembered {
		if !slices.ContainsFunc(w.d.table.ifaces[r.iface], func(b *binding) bool { return b.entry.key == r.key }) {
			return fmt.Errorf("the observer remembers %v on %v, the detector does not", r.key, r.iface)
		}
	}
	return nil
}

func (w *world) apply(fx Effects) {
	w.t.Helper()
	for _, ev := range fx.Events {
		w.events = append(w.events, ev)
		w.check(ev)
	}
	for _, s := range fx.Probes {
		w.probe(s)
	}
}

// run advances the clock to at, and does what is due until then.
func (w *world) run(at time.Time) {
	w.t.Helper()
	for range 1_000_000 {
		next := w.due()
		if next.IsZero() || next.After(at) {
			w.now = at
			return
		}
		w.now = schedule.Later(w.now, next)
		w.step()
	}
	w.t.Fatal("time does not pass")
}

// due returns the time of the next step; zero if there is none.
func (w *world) due() time.Time {
	next := w.d.Next()
	if len(w.pending) > 0 {
		next = schedule.Earlier(next, w.pending[0].at)
	}
	return next
}

// step does one thing that is due.
func (w *world) step() {
	w.t.Helper()
	if len(w.pending) > 0 && !w.pending[0].at.After(w.now) {
		r := w.pending[0]
		w.pending = w.pending[1:]
		r.do()
		return
	}
	w.apply(w.d.Tick(w.now))
	if next := w.d.Next(); !next.IsZero() && !next.After(w.now) {
		w.t.Fatalf("%s: next %v is not after now", w.since(w.now), next)
	}
}

// play runs a script, and then advances the clock by more.
func (w *world) play(script string, more time.Duration) {
	w.t.Helper()
	for line := range lines(script) {
		at, err := time.ParseDuration(strings.Fields(line)[0])
		if err != nil {
			w.t.Fatal(err)
		}
		w.run(w.start.Add(at))
		w.do(line)
	}
	w.run(w.now.Add(more))
	if w.d.table.counts.Overdue != 0 {
		w.t.Errorf("%d deadlines were not used up", w.d.table.counts.Overdue)
	}
}

func (w *world) since(t time.Time) time.Duration {
	return t.Sub(w.start).Round(10 * time.Millisecond)
}

func lines(s string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for sc := bufio.NewScanner(strings.NewReader(s)); sc.Scan(); {
			if line := strings.Join(strings.Fields(sc.Text()), " "); line != "" && !yield(line) {
				return
			}
		}
	}
}

func linesOf(s string) []string { return slices.Collect(lines(s)) }
