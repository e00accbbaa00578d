package detector

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// ceiling has the most bindings that a table may have. It exceeds the limits after these were lowered.
type ceiling struct{ bindings, perInterface int }

// narrow sets the ceiling before the limits are lowered: bindings that exist may stay.
func (c *ceiling) narrow(d *Detector) {
	*c = ceiling{max(4, d.table.size()), 2}
	for _, on := range d.table.ifaces {
		c.perInterface = max(c.perInterface, len(on))
	}
}

// audit returns an error if the state of a Detector breaks an invariant.
func audit(d *Detector) error {
	return auditUnder(d, ceiling{d.table.opts.MaxBindings, d.table.opts.MaxPerInterface})
}

func auditUnder(d *Detector, limits ceiling) error {
	perInterface, perHolder, ofHosts, size := map[Interface]int{}, map[HolderID]int{}, map[Interface]bool{}, 0
	elsewhere := [Host + 1]int{d.table.remotes[0]}
	for key, e := range d.table.entries {
		switch {
		case e.key != key:
			return fmt.Errorf("entry %v under %v", e.key, key)
		case len(e.bindings) == 0 && e.conflict == nil && e.Place != 0:
			return fmt.Errorf("%v: scheduled for nothing", key)
		case (len(e.bindings) > 0 || e.conflict != nil) && e.Place == 0:
			return fmt.Errorf("%v: not scheduled", key)
		case len(e.bindings) == 0 && e.conflict == nil && e.kept == 0 && e.idle == nil:
			return fmt.Errorf("%v: nothing keeps it", key)
		case len(e.bindings) > 0 && e.idle != nil:
			return fmt.Errorf("%v: idle with bindings", key)
		case len(e.bindings) > maxHolders || len(e.notes) > maxNotes || len(e.former) > maxNotes+1+MaxFormer || len(e.penalties) > maxPenalties:
			return fmt.Errorf("%v: %d bindings, %d notes, %d penalties", key, len(e.bindings), len(e.notes), len(e.penalties))
		}
		if _, open := d.conflicts.open[e]; open != (e.conflict != nil) {
			return fmt.Errorf("%v: open %v", key, open)
		}
		if e.conflict == nil && !e.shared && enough(e.counting()) {
			return fmt.Errorf("%v: two holders and no suspicion", key)
		}
		if e.conflict != nil && e.shared {
			return fmt.Errorf("%v: in conflict though shared", key)
		}
		if err := auditVerdict(e.public(&d.conflicts.history)); err != nil {
			return err
		}
		if err := auditTicket(d, e); err != nil {
			return err
		}
		if c := e.conflict; c != nil && len(c.listed) > 2*maxHolders {
			return fmt.Errorf("%v: %d holders listed", key, len(c.listed))
		}
		remotes := 0
		for _, b := range e.bindings {
			if b.remote {
				remotes++
				elsewhere[b.evidence]++
			}
			size++
			perHolder[b.holder.ID]++
			switch {
			case b.entry != e || b.evidence == 0 || b.elem == nil || b.elem.Value != b:
				return fmt.Errorf("%v: broken binding of %v", key, b.holder)
			case len(b.sources) == 0 || len(b.sources) > maxSources:
				return fmt.Errorf("%v: %d sources", key, len(b.sources))
			case b.counts() != !b.counted.IsZero():
				return fmt.Errorf("%v: %v counts since %v", key, b.evidence, b.counted)
			case b.check != nil && (e.conflict == nil || !b.counts()):
				return fmt.Errorf("%v: a check for nothing", key)
			case b.remote != (b.holder.ID.Node != d.table.opts.Node):
				return fmt.Errorf("%v: %v is remote: %v", key, b, b.remote)
			case b.remote && (!b.counts() || b.holder.Interface != (Interface{}) || len(b.sources) != 1):
				return fmt.Errorf("%v: a remote binding of %v on %v", key, b.evidence, b.holder.Interface)
			case b.changed != slices.Contains(d.changed, b), !b.changed && b.lease() != b.leased:
				return fmt.Errorf("%v: a change is lost", key)
			}
			if b.remote {
				continue
			}
			for _, s := range b.sources {
				perInterface[s.iface]++
				ofHosts[s.iface] = strings.HasPrefix(b.holder.NetnsName, "host")
				if !slices.Contains(d.table.ifaces[s.iface], b) {
					return fmt.Errorf("%v: not on %v", key, s.iface)
				}
			}
		}
		switch {
		case remotes != e.remotes("") || remotes > maxRemote:
			return fmt.Errorf("%v: %d remote bindings, counted %d", key, remotes, e.remotes(""))
		case remotes > 0 && e.conflict == nil && !e.hasLocal():
			return fmt.Errorf("%v: %d remote bindings without one here", key, remotes)
		}
	}
	for i, n := range perInterface {
		if n != len(d.table.ifaces[i]) || n > limits.perInterface && !ofHosts[i] {
			return fmt.Errorf("%v: %d bindings, indexed %d", i, n, len(d.table.ifaces[i]))
		}
	}
	for id, n := range perHolder {
		if n != len(d.table.holders[id]) {
			return fmt.Errorf("%v: %d bindings, indexed %d", id, n, len(d.table.holders[id]))
		}
	}
	switch {
	case len(d.table.ifaces) != len(perInterface) || len(d.table.holders) != len(perHolder):
		return fmt.Errorf("indexes of %d interfaces, %d holders", len(d.table.ifaces), len(d.table.holders))
	case elsewhere != d.table.remotes:
		return fmt.Errorf("remote bindings %v, counted %v", elsewhere, d.table.remotes)
	case size != d.table.size() || size > limits.bindings:
		return fmt.Errorf("%d bindings, ranked %d", size, d.table.size())
	case len(d.conflicts.history.list) > d.table.opts.MaxHistory || d.table.idle.Len() > d.table.opts.MaxHistory:
		return fmt.Errorf("history %d, idle %d", len(d.conflicts.history.list), d.table.idle.Len())
	case d.table.counts.Overdue != 0:
		return fmt.Errorf("%d deadlines were not used up", d.table.counts.Overdue)
	}
	return nil
}

// proof records the answers that a Detector observed, to check what it confirms.
type proof map[Key]map[HolderID][]proven

// proven is an answer, to a probe or to somebody else.
type proven struct {
	at        time.Time
	overheard bool
}

// While a holder answers somebody else, those of a confirmed conflict have the address, too: they are probed now and then.
func (p proof) record(s Sighting, open []Conflict) {
	if !s.Answer || s.Evidence == Forwarded {
		return
	}
	if p[s.Key] == nil {
		p[s.Key] = map[HolderID][]proven{}
	}
	p[s.Key][s.Holder.ID] = append(p[s.Key][s.Holder.ID], proven{s.At, s.Overheard})
	for _, c := range open {
		if !s.Overheard || c.Key != s.Key || c.State != Confirmed {
			continue
		}
		for _, h := range c.Holders {
			if h.Holder.ID != s.Holder.ID {
				p[s.Key][h.Holder.ID] = append(p[s.Key][h.Holder.ID], proven{s.At, true})
			}
		}
	}
}

// judge returns an error unless each holder of a newly confirmed conflict had the address together with another
// one since the suspicion: they answered twice, MinOverlap apart, and each time within pairTime of each other. What one of them answered
// to somebody else counts since the agent's start: see [deaf].
func (p proof) judge(c Conflict, born time.Time, overlap time.Duration) error {
	answers := p[c.Key]
	for _, h := range c.Holders {
		if !slices.ContainsFunc(c.Holders, func(o Binding) bool {
			return o.Holder.ID != h.Holder.ID && overlapOf(answers[h.Holder.ID], answers[o.Holder.ID], c.SuspectedAt, born) >= overlap
		}) {
			return fmt.Errorf("%s is confirmed with %s, but these are the answers: %v", c.Key.IP, h.Holder, answers)
		}
	}
	return nil
}

// overlapOf returns the time from the first to the last pair of answers of two holders.
func overlapOf(a, b []proven, suspected, born time.Time) time.Duration {
	var first, last time.Time
	for _, x := range a {
		for _, y := range b {
			since := born
			if !x.overheard && !y.overheard {
				since = schedule.Later(since, suspected)
			}
			if !schedule.Earlier(x.at, y.at).Before(since) && x.at.Sub(y.at).Abs() <= pairTime {
				first, last = schedule.Earlier(first, schedule.Later(x.at, y.at)), schedule.Later(last, schedule.Earlier(x.at, y.at))
			}
		}
	}
	return last.Sub(first)
}

var verbs = strings.Fields(`announces announces sends sends spoofs forges forwards takes answers loses
	drops drops gone dies mute unmute proxies unreachable reachable guarded guarded_5s unguarded changes-mac
	changes-interface changes-netns resolves restarts shares unshares narrows widens`)

// FuzzDetector makes a script of bytes, three for each line: holder and address, verb, time.
func FuzzDetector(f *testing.F) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 3*(20+r.IntN(200)))
		for i := 0; i < len(data); i += 8 {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], r.Uint64())
			copy(data[i:], b[:])
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		opts := Options{Node: "n1", MaxBindings: 8, MaxPerInterface: 3, MaxHistory: 3}
		if len(data) > 0 && data[len(data)-1]&1 == 1 {
			opts.Budget = &paced{pause: 300 * time.Millisecond}
		}
		w := newWorld(t, opts)
		w.proof = proof{}
		wide, restored := ceiling{8, 3}, map[State]uint64{}
		limits := wide
		names := []string{"a", "b", "c", "d", "host1", "host2", "r", "e@n2", "f@n2", "g@n3", "host@n3"}
		for len(data) >= 3 {
			name := names[int(data[0]&15)%len(names)]
			ip := netip.AddrFrom4([4]byte{10, 0, 0, data[0]>>4&3 + 1})
			verb := strings.ReplaceAll(verbs[int(data[1])%len(verbs)], "_", " ")
			if strings.HasPrefix(verb, "guarded") {
				verb += " because"
			}
			// From nothing to a few minutes, mostly about a second.
			pause := time.Duration(data[2]&63) * 50 * time.Millisecond << (data[2] >> 6 * 2)
			w.run(w.now.Add(pause))
			switch verb {
			case "narrows":
				limits.narrow(w.d)
				w.d.SetLimits(4, 2, 1)
			case "widens":
				limits = wide
				w.d.SetLimits(8, 3, 3)
			default:
				w.do(fmt.Sprintf("0s %s %s %s", name, verb, ip))
			}
			if verb == "restarts" {
				limits = ceiling{w.d.table.opts.MaxBindings, w.d.table.opts.MaxPerInterface}
				clear(restored)
				for _, c := range w.d.Snapshot().Open {
					restored[c.State]++
				}
			}
			if err := auditUnder(w.d, limits); err != nil {
				w.history(t)
				t.Fatalf("after %s %s %s: %v", name, verb, ip, err)
			}
			if data[0]>>6 == 0 {
				w.take()
			}
			data = data[3:]
		}
		w.take()
		for i := range w.d.table.ifaces {
			w.apply(w.d.WithdrawInterface(i, "the end", w.now))
		}
		w.pending = nil
		w.run(w.now.Add(restoredTime + 20*time.Second))
		if err := audit(w.d); err != nil {
			t.Fatal(err)
		}
		if open := w.d.Conflicts(false); len(open) != 0 || len(w.d.Bindings(nil)) != 0 || !w.d.Next().IsZero() {
			t.Fatalf("at the end %d are open, %d bindings are left, next %v", len(open), len(w.d.Bindings(nil)), w.d.Next())
		}
		if w.take(); len(w.leases) != 0 {
			t.Fatalf("at the end %d leases", len(w.leases))
		}
		n := w.d.Counts()
		var confirmed uint64
		for _, k := range n.Confirmed {
			confirmed += k
		}
		confirmed += restored[Confirmed]
		n.Suspected += restored[Suspected] + restored[Confirmed]
		if confirmed != n.Resolved || n.Suspected != n.Faded+n.Resolved {
			t.Fatalf("%d suspected, %d faded, %d confirmed, %d resolved", n.Suspected, n.Faded, confirmed, n.Resolved)
		}
	})
}

// TestChurn moves addresses lawfully from holder to holder, at random: the old one
// goes before, with, or up to 0.9 s after the coming of the new one, and its withdrawal
// arrives at once, late or never. Nothing of it is a conflict.
func TestChurn(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			w := newWorld(t, Options{Node: "n1"})
			var last [4]string
			for n := range 300 {
				i := r.IntN(len(last))
				ip := fmt.Sprintf("10.0.0.%d", i+1)
				w.run(w.now.Add(time.Duration(r.IntN(3000)) * time.Millisecond))
				old, next := last[i], fmt.Sprintf("p%d", n)
				early := r.IntN(3) == 0
				if old != "" && early {
					w.do(fmt.Sprintf("0s %s drops %s", old, ip))
				}
				w.do(fmt.Sprintf("0s %s %s %s", next, []string{"announces", "sends"}[r.IntN(2)], ip))
				if old != "" && !early {
					w.run(w.now.Add(time.Duration(r.IntN(900)) * time.Millisecond))
					w.do(fmt.Sprintf("0s %s drops %s", old, ip))
				}
				if old != "" && r.IntN(2) == 0 {
					w.run(w.now.Add(time.Duration(r.IntN(3)) * 200 * time.Millisecond))
					w.do(fmt.Sprintf("0s %s gone", old))
				}
				last[i] = next
			}
			w.run(w.now.Add(time.Minute))
			for _, line := range w.log() {
				if !strings.Contains(line, "suspected") && !strings.Contains(line, "faded") && !strings.Contains(line, "changed") {
					t.Error(line)
				}
			}
			if len(w.log()) == 0 {
				t.Error("not even a suspicion: the test tests nothing")
			}
			if open := w.d.Conflicts(false); len(open) != 0 {
				t.Errorf("still open: %v", open)
			}
		})
	}
}

// TestFoundUnderLoss makes duplicates of which each probe is lost with a chance
// of three in ten. All that answer within their attempts are found, and in time.
func TestFoundUnderLoss(t *testing.T) {
	w := newWorld(t, Options{Node: "n1"})
	r := rand.New(rand.NewPCG(3, 3))
	w.lose = func() bool { return r.IntN(10) < 3 }
	const pairs = 200
	for i := range pairs {
		ip := netip.AddrFrom4([4]byte{10, 9, 0, byte(i)})
		w.do(fmt.Sprintf("0s a%d announces %s", i, ip))
		w.run(w.now.Add(20 * time.Millisecond))
		w.do(fmt.Sprintf("0s b%d sends %s", i, ip))
	}
	w.run(w.now.Add(3 * time.Second))
	found := 0
	for _, c := range w.d.Conflicts(false) {
		if c.State != Confirmed {
			continue
		}
		found++
		if took := c.ConfirmedAt.Sub(c.SecondSeen); took < time.Second || took > 1700*time.Millisecond {
			t.Errorf("%s took %v", c.Key.IP, took)
		}
	}
	// Three attempts for each of two holders in two rounds: 0.973^4.
	if found < pairs*80/100 {
		t.Errorf("found %d of %d", found, pairs)
	}
}
