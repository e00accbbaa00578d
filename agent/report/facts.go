package report

import (
	"cmp"
	"context"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/schedule"
)

const (
	// factsAge is how old a reading may be for an answer. A watch and the reporters get one that is up to staleAfter old.
	factsAge   = time.Second
	staleAfter = 30 * time.Second
	// The agent reads facts every soonAgain, until it has those of all own holders. It waits factsWait for the runtime, which may hang.
	// Then it reads them every laterAgain, as long as a conflict is open.
	soonAgain  = 500 * time.Millisecond
	factsWait  = 2 * time.Second // so that they are with the others in the 3 s for which a judgement waits
	laterAgain = 10 * time.Second
	// listedLate is how long after a netns was made the runtime may not list its sandbox yet: that took 18 s on a busy machine.
	listedLate = 30 * time.Second
)

// facts has what this node knows of its own holders in confirmed conflicts.
type facts struct {
	reading sync.Mutex // held while a goroutine reads
	// The rest belongs to the goroutine that owns the parts. An entry of known does not change, and stays when its conflict has ended.
	last  reading
	known map[string]map[detector.HolderID]*document.Facts // by the conflict's id
	// best has what was known of the holders of open conflicts when most was behind them, by the conflict's id.
	best  map[string]map[detector.HolderID]*document.Facts
	next  time.Time                   // when the next reading is planned, or was; zero for none
	pace  schedule.Pace               // of readings that nobody has asked for
	after func(time.Duration, func()) // [time.AfterFunc]
}

// reading is what readFacts has read of the node, in its own goroutine. It does not change.
type reading struct {
	at         time.Time
	namespaces map[uint64]netns.Ref // all that were wanted, by inode: an empty Ref has neither a name nor a process
	processes  map[uint64]document.Process
	blind      bool // not all processes can be seen
	machine    []links.Configured
	managers   map[string]bool // which of document.Managers run on the node
}

// wanted are the namespaces, by inode, and the addresses of the node that a reading is about.
type wanted struct {
	namespaces map[uint64]bool
	addresses  map[netip.Addr]bool
}

// read reads what is wanted. What cannot be read is absent.
func (w *wanted) read() reading {
	r := reading{at: time.Now(), blind: !netns.SeesProcesses(), namespaces: make(map[uint64]netns.Ref), processes: make(map[uint64]document.Process)}
	if found, err := netns.Find(w.namespaces); err == nil {
		for inode := range w.namespaces {
			r.namespaces[inode] = found[inode]
			if pid := found[inode].Pid; pid != 0 {
				name, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
				r.processes[inode] = document.Process{PID: pid, Command: document.Text(strings.TrimSuffix(string(name), "\n"), document.MaxCommand), Unit: pods.UnitOf(pid)}
			}
		}
	}
	if len(w.addresses) > 0 {
		r.machine, _ = links.ListConfigured(w.addresses)
		r.managers = managers()
	}
	return r
}

// managers returns which programs run on the node that give it addresses.
func managers() map[string]bool {
	found := make(map[string]bool)
	own, err := netns.Inode(netns.Self)
	if err != nil {
		return nil
	}
	_ = netns.EachProcess(func(pid int, _ string, inode uint64) {
		if inode != own || len(found) == len(document.Managers) {
			return
		}
		name, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
		if name := strings.TrimSuffix(string(name), "\n"); slices.Contains(document.Managers, name) {
			found[name] = true
		}
	})
	return found
}

// want returns what to read for these conflicts, nil if the last reading does. Call it in the goroutine that owns the parts.
func (r *Report) want(judged []detector.Conflict, now time.Time) *wanted {
	w, due := &wanted{make(map[uint64]bool), make(map[netip.Addr]bool)}, now.Sub(r.facts.last.at) >= factsAge
	for _, c := range judged {
		for _, b := range c.Holders {
			if !r.isOwn(&b) {
				continue
			}
			if b.Evidence == detector.Host {
				w.addresses[b.Key.IP] = true
				due = due || r.facts.known[c.ID][b.Holder.ID] == nil
			} else if i := r.interfaceOf(b.Holder); i != nil && i.Seen {
				w.namespaces[i.Netns.Inode] = true
				_, known := r.facts.last.namespaces[i.Netns.Inode]
				due = due || !known
			}
		}
	}
	if !due || len(w.addresses)+len(w.namespaces) == 0 {
		return nil
	}
	return w
}

// judged returns a copy of the conflicts that are judged: those that are confirmed, and are no drills.
func (r *Report) judged() []detector.Conflict {
	return slices.DeleteFunc(r.Detector.Conflicts(false), func(c detector.Conflict) bool { return !isJudged(&c) })
}

func isJudged(c *detector.Conflict) bool { return c.State == detector.Confirmed && !c.IsDrill() }

// isOwn reports whether a holder is on this node.
func (r *Report) isOwn(b *detector.Binding) bool { return b.Holder.ID.Node == r.Table.Host.Node }

// interfaceOf returns the interface of a holder, nil if it is gone.
func (r *Report) interfaceOf(h detector.Holder) *observe.Interface {
	if i := r.Table.Interface(h.Interface); i != nil && i.Holder == h.ID {
		return i
	}
	return nil
}

// readFacts brings the facts up to date. Do not call it in the goroutine that owns the parts.
func (r *Report) readFacts(ctx context.Context) error {
	r.facts.reading.Lock()
	defer r.facts.reading.Unlock()
	var w *wanted
	err := r.Do(ctx, func() {
		judged := r.judged()
		if w = r.want(judged, time.Now()); w == nil {
			r.settle(judged, time.Now())
		}
	})
	if err != nil || w == nil {
		return err
	}
	read := w.read()
	return r.Do(ctx, func() {
		r.facts.last = read
		r.settle(r.judged(), time.Now())
	})
}

// follow has the facts read until no conflict is open. Call it in the goroutine that owns the parts.
func (r *Report) follow(wait time.Duration) {
	at := r.facts.pace.Next(time.Now().Add(wait))
	if next := r.facts.next; !next.IsZero() && !at.Before(next) {
		return
	}
	r.facts.next = at
	r.facts.after(time.Until(at), func() {
		if r.readFacts(context.Background()) != nil {
			return // the agent is stopping
		}
		_ = r.Do(context.Background(), func() {
			if r.facts.next != at {
				return // another one is planned
			}
			r.facts.next = time.Time{}
			began := time.Now()
			open := r.judged()
			r.facts.pace.Done(began, began.Add(3*time.Since(began))) // the reading has gone through them twice
			switch {
			case len(open) == 0:
			case slices.ContainsFunc(open, func(c detector.Conflict) bool { return !isOld(c) && !r.complete(c) }):
				r.follow(soonAgain)
			default:
				if time.Since(r.Pods.Sandboxes().Listed) > laterAgain {
					r.Pods.Relist()
				}
				r.follow(laterAgain)
			}
		})
	})
}

// settle finds what is known of the holders in these conflicts, and informs the reporters of what is new.
func (r *Report) settle(judged []detector.Conflict, now time.Time) {
	best := make(map[string]map[detector.HolderID]*document.Facts)
	for _, c := range judged {
		before, known := r.facts.known[c.ID], make(map[detector.HolderID]*document.Facts)
		best[c.ID] = make(map[detector.HolderID]*document.Facts)
		differ := false
		for _, b := range c.Holders {
			if !r.isOwn(&b) {
				continue
			}
			id := b.Holder.ID
			if f := cmp.Or(r.factsOf(&c, &b, now), before[id]); f != nil {
				known[id] = f
				best[c.ID][id] = liveliest(r.facts.best[c.ID][id], before[id], f)
				differ = differ || before[id] == nil || !f.Alike(before[id])
			}
		}
		if len(known) == 0 {
			continue
		}
		if r.facts.known[c.ID] = known; differ {
			r.Changed()
			r.tellFacts(c)
		}
	}
	r.facts.best = best
}

// liveliest returns the last of the facts of a holder with most behind it.
func liveliest(all ...*document.Facts) (best *document.Facts) {
	rank := map[document.Behind]int{document.BehindForgotten: 1, document.BehindStopped: 1, document.BehindAlive: 2, document.BehindRunning: 3}
	for _, f := range all {
		if f != nil && (best == nil || rank[f.Behind] >= rank[best.Behind]) {
			best = f
		}
	}
	return best
}

// ended has the history of a conflict say what its holders were. One whose end was the end of the conflict looked as if it had been left
// behind, from the stop of its sandbox to the end of its interface, and that is not why there was a conflict.
func (f *facts) ended(id string) {
	if best := f.best[id]; len(best) > 0 {
		f.known[id] = best
	}
	delete(f.best, id)
}

// complete reports whether the facts of all own holders are known.
func (r *Report) complete(c detector.Conflict) bool {
	return !slices.ContainsFunc(c.Holders, func(b detector.Binding) bool {
		return r.isOwn(&b) && !b.Gone && r.facts.known[c.ID][b.Holder.ID] == nil
	})
}

// isOld reports whether what is still not known of a conflict is not waited for any more.
func isOld(c detector.Conflict) bool { return time.Since(c.ConfirmedAt) > 2*factsWait }

// tellFacts informs the reporters once all is known that will be soon.
func (r *Report) tellFacts(c detector.Conflict) {
	if _, awaited := r.causes.awaited[c.ID]; isOld(c) || r.complete(c) && (!awaited || !r.Books.Enabled()) {
		r.reportConflict(c)
	}
}

// factsOf returns what is known of a holder, nil if it is gone or facts are on their way.
func (r *Report) factsOf(c *detector.Conflict, b *detector.Binding, now time.Time) *document.Facts {
	read := &r.facts.last
	if b.Evidence == detector.Host {
		if read.at.Before(c.ConfirmedAt) {
			return nil
		}
		return &document.Facts{Machine: read.machineOf(b)}
	}
	i := r.interfaceOf(b.Holder)
	if i == nil {
		return nil
	}
	f := &document.Facts{GivenOthers: i.GivenOthers(b.Key.IP), CNINetwork: document.Text(audit.NetworkOf(i), document.MaxName)}
	f.GivenOthers = f.GivenOthers[:min(len(f.GivenOthers), document.MaxGivenOthers)]
	if !i.Seen {
		return f
	}
	ref, scanned := read.namespaces[i.Netns.Inode]
	sandboxes := r.Pods.Sandboxes()
	late := now.Sub(schedule.Later(c.ConfirmedAt, b.FirstSeen)) >= factsWait
	if !late && (!scanned || i.Unsettled() || !sandboxes.None && (!sandboxes.Settled || sandboxes.Listed.Before(c.SecondSeen))) {
		return nil
	}
	if f.NetnsInode = i.Netns.Inode; ref.Name != "" && document.IsPlainPath(ref.Path) {
		f.NetnsPath = ref.Path
	}
	if process, ok := read.processes[ref.Inode]; ok && (i.Pod.Pod == (detector.Pod{}) || i.Pod.Pod.Engine != "") {
		f.Process = &process
	}
	if scanned {
		f.Behind = behind(i, sandboxes, ref, read.blind)
	}
	return f
}

// machineOf returns how the kernel has an address of the node, nil if it has not.
func (r *reading) machineOf(b *detector.Binding) *document.Machine {
	for _, a := range r.machine {
		if a.Prefix.Addr() == b.Key.IP && a.Index == int(b.Holder.Interface.Ifindex) {
			return &document.Machine{
				Device: document.Text(a.Device, document.MaxName), Prefix: a.Prefix, Dynamic: a.Dynamic, Since: a.Since.Round(0), Manager: r.manager(a),
			}
		}
	}
	return nil
}

// manager names the program that has set an address, as the address says, or as is likely: virtual addresses are mostly alone in their subnet, and
// of one of these programs.
func (r *reading) manager(a links.Configured) string {
	const keepalived = 18 // RTPROT_KEEPALIVED, linux/rtnetlink.h
	if a.Proto == keepalived {
		return "keepalived"
	}
	for name := range r.managers {
		if len(r.managers) == 1 && a.Proto == 0 && a.Prefix.IsSingleIP() && !a.Dynamic {
			return name
		}
	}
	return ""
}

// behind says what is behind an interface, by the runtime's list and by what was read of its netns: empty if that is not sure. blind says
// that not all processes can be seen.
//
// A sandbox that is being made has a netns before it has a process, and before the runtime lists it. So of a netns that no pod was seen in,
// the agent believes the list only listedLate after it found the netns. It takes such a netns for a forgotten one only if a runtime
// made it, which its name shows.
func behind(i *observe.Interface, sandboxes pods.Sandboxes, ref netns.Ref, blind bool) document.Behind {
	alive, empty := ref.Pid != 0, ref.Pid == 0 && !blind
	ready, known := sandboxes.Netns[i.View.Cookie]
	wasPod := i.Pod.Pod != (detector.Pod{}) && i.Pod.Pod.Engine == ""
	unlisted := sandboxes.Complete && sandboxes.Settled && !known && (wasPod || sandboxes.Listed.Sub(i.Found) >= listedLate)
	switch {
	case sandboxes.None && alive:
		return document.BehindAlive
	case sandboxes.None, !sandboxes.Listed.After(i.Found): // there is none, it does not answer, or it has not since then
		return ""
	case ready:
		return document.BehindRunning
	case alive && (known || unlisted):
		return document.BehindAlive
	case empty && known:
		return document.BehindStopped
	case empty && unlisted && (wasPod || strings.HasPrefix(ref.Name, "cni-")):
		return document.BehindForgotten
	}
	return ""
}
