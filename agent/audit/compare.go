package audit

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

const (
	// every is how often the books are read, if they are of an ordinary size. The readings of that time must agree on a finding:
	// while an ADD or a DEL runs, store and wire differ for some milliseconds.
	every = time.Second
	// atRest is the same while nothing changes and nothing is to be decided.
	atRest = 3 * time.Second
	// Reading takes one in share of the time at most, unless it came less often than slowest then.
	share   = 800
	slowest = 5 * time.Second
	// listAgain is how old the runtime's list may be while there are findings about pods that run: one may have ended.
	listAgain = 5 * time.Second
	// maxFindings bounds the findings that are kept.
	maxFindings = 1024
)

// Live is an address that a pod of this node has on the wire.
type Live struct {
	IP               netip.Addr
	Interface, Netns string
	Pod              detector.Pod
	Sandbox          string // the beginning of its id (pods.ShortID), empty if it is not known
	Given            detector.Given
	Drill            bool // it need not have a reservation
	// Network is the network in CNI's configuration, if a result in libcni's cache names this interface as that of the pod's
	// primary network; else empty.
	Network string
	// Secondary: a result names other interfaces of the pod for that, so this one is in a network that dupip does not know.
	Secondary bool
}

// reading is what was read at one time.
type reading struct {
	at        time.Time
	books     []*books.Reserved
	unread    error // why they were not read, or not all
	sandboxes pods.Sandboxes
	Node
}

// same reports whether a later reading has what an earlier one has. A list of sandboxes may be a later one with the same content.
func (r *reading) same(as *reading) bool {
	return slices.Equal(r.books, as.books) && (r.unread == nil) == (as.unread == nil) && (r.unread == nil || r.unread.Error() == as.unread.Error()) &&
		r.sandboxes.Complete == as.sandboxes.Complete && r.sandboxes.Listed.IsZero() == as.sandboxes.Listed.IsZero() &&
		maps.Equal(r.sandboxes.Ready, as.sandboxes.Ready) &&
		r.Hidden == as.Hidden && slices.Equal(r.Live, as.Live) && maps.Equal(r.Foreign, as.Foreign)
}

// Node is what is known of the node's interfaces.
type Node struct {
	Live []Live
	// Foreign are the addresses behind interfaces whose pods the runtime does not know: other runtimes use the same stores.
	Foreign map[netip.Addr]bool
	// Hidden is an interface that is not observed, or whose netns is not seen; empty for none.
	Hidden string
}

// owner is a sandbox that has an address in a store.
type owner struct {
	store   string
	ip      netip.Addr
	sandbox string
}

// candidate identifies a finding.
type candidate struct {
	owner
	kind string
	// reservedFor is who has the reservation of a mismatched one: another one is another finding.
	reservedFor string
}

func candidateOf(f *document.Finding) candidate {
	return candidate{owner{f.Store, f.IP, f.Sandbox}, f.Kind, f.ReservedFor}
}

// comparison compares readings, one after the other. The zero value is ready to use. It is pure.
type comparison struct {
	grace time.Duration // see Options
	// reserved are the reservations that live holders have, or had. Those of a store that cannot be read now stay.
	reserved map[owner]bool
	// candidates may become findings. Those of an earlier round than the last one have ended.
	candidates map[candidate]*state
	round      int
	// began is the first reading since the last restart. settled: what was there then has been decided on, but for early
	// reservations, which nobody has held since then.
	began   time.Time
	settled bool
	early   int
	// due is when a reading that is the same as the last one is decided on differently; zero for never.
	due time.Time
}

type state struct {
	since    time.Time
	reported bool
	round    int
}

// add compares the next reading. It returns the findings, at most maxFindings, how many more there are, and whether some
// candidates wait for a reading that agrees.
func (c *comparison) add(r *reading) (findings []document.Finding, omitted int, waiting bool) {
	if c.candidates == nil {
		c.candidates, c.began, c.settled = make(map[candidate]*state), r.at, false
	}
	undecided := false
	c.early, c.due = 0, time.Time{}
	reserved := make(map[owner]bool)
	c.round++
	runtime := newRuntime(r)
	findings = make([]document.Finding, 0, min(len(c.candidates), maxFindings))
	// found takes a candidate, of which there may be thousands, and returns nil unless it is a finding that there is room for.
	found := func(k candidate) *document.Finding {
		least, certain := every, true
		s := c.candidates[k]
		if s == nil {
			s = &state{since: r.at}
			c.candidates[k] = s
		}
		if k.kind == document.Unheld {
			least = c.grace
			// A pod whose interface is just being made is not seen for a moment.
			certain = r.Hidden == "" || s.reported
		}
		s.reported = certain && r.at.Sub(s.since) >= least && !r.sandboxes.Listed.Before(s.since)
		s.round = c.round
		if s.reported && k.kind != document.Unheld {
			waiting = waiting || r.at.Sub(r.sandboxes.Listed) >= listAgain
			c.until(r.sandboxes.Listed.Add(listAgain))
		}
		if !s.reported && certain {
			c.until(s.since.Add(least)) // or now, if it waits for a list
		}
		if !s.reported && s.since.Equal(c.began) {
			if k.kind == document.Unheld {
				c.early++
			} else {
				undecided = true
			}
		}
		switch {
		case !s.reported:
			due := k.kind != document.Unheld || certain && r.at.Sub(s.since) >= least
			waiting = waiting || due && r.sandboxes.Listed.Before(s.since)
		case len(findings) == maxFindings:
			omitted++
		default:
			findings = append(findings, document.Finding{Kind: k.kind, IP: k.ip, Store: k.store, ReservedFor: k.reservedFor, Since: s.since})
			return &findings[len(findings)-1]
		}
		return nil
	}
	for _, l := range r.Live {
		c.compareLive(l, r.books, runtime, reserved, found)
	}
	for _, b := range r.books {
		if r.seeksUnheld(b) {
			compareReserved(b, r, runtime, found)
		}
	}
	c.reserved = reserved
	c.settled = c.settled || !undecided && r.at.Sub(c.began) >= every
	// In place, because a store may have leaked thousands.
	maps.DeleteFunc(c.candidates, func(_ candidate, s *state) bool { return s.round != c.round })
	slices.SortFunc(findings, func(x, y document.Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(document.FindingKinds, x.Kind), slices.Index(document.FindingKinds, y.Kind)), x.IP.Compare(y.IP), cmp.Compare(x.Store, y.Store))
	})
	return findings, omitted, waiting
}

// until notes that the same reading is decided on differently then.
func (c *comparison) until(at time.Time) {
	if c.due.IsZero() || at.Before(c.due) {
		c.due = at
	}
}

// holds reports whether a reading that is the same as the last one has the same findings.
func (c *comparison) holds(now time.Time) bool {
	return c.candidates != nil && c.settled && (c.due.IsZero() || now.Before(c.due))
}

// rest is for how long that is so, at most atRest.
func (c *comparison) rest(now time.Time) time.Duration {
	if c.due.IsZero() {
		return atRest
	}
	return min(atRest, c.due.Sub(now))
}

// restart forgets what may become a finding: there is no reading now that agrees.
func (c *comparison) restart() { c.candidates = nil }

// compareLive looks for an address that a pod has without a reservation.
func (c *comparison) compareLive(l Live, all []*books.Reserved, runtime runtime, reserved map[owner]bool, found func(candidate) *document.Finding) {
	var here []document.Finding
	for _, b := range all {
		o := owner{b.Store, l.IP, l.Sandbox}
		r, exists := b.Reservations[l.IP]
		own := isOwn(b, l)
		if own || c.reserved[o] {
			reserved[o] = true
		}
		if b.Reservations == nil { // it cannot be read now
			continue
		}
		f := document.Finding{
			IP: l.IP, Book: b.Book, CNINetwork: b.Network, Store: b.Store, Sandbox: cmp.Or(runtime.full[l.Sandbox], l.Sandbox),
			Holder: document.Holder{Interface: l.Interface, Netns: l.Netns, Pod: document.NewPod(l.Pod), Given: l.Given},
		}
		switch {
		case own:
			return // whatever other books cover the same range
		case !runtime.isReady(l.Sandbox), !c.reserved[o] && (l.Drill || l.Network != b.Network || !b.Covers(l.IP)):
		case !exists:
			f.Kind = document.Unreserved
			here = append(here, f)
		case runtime.isReady(short(r.Sandbox)):
			f.Kind, f.ReservedFor, f.ReservedPod = document.Mismatched, r.Sandbox, document.NewPod(runtime.pods[short(r.Sandbox)])
			here = append(here, f)
		}
	}
	for _, f := range here {
		if made := found(candidateOf(&f)); made != nil {
			f.Since = made.Since
			*made = f
		}
	}
}

// vethPlugins make veths, which dupip observes: other runtimes' pods have one, too.
var vethPlugins = []string{"bridge", "ptp", "flannel", "azure-vnet", "cilium-cni"}

// seeksUnheld reports whether reservations of sandboxes that do not exist are looked for in a book.
func (r *reading) seeksUnheld(b *books.Reserved) bool {
	return r.sandboxes.Complete && b.Err == nil && slices.Contains(vethPlugins, b.Plugin)
}

// compareReserved looks for reservations of sandboxes that do not exist.
func compareReserved(b *books.Reserved, r *reading, runtime runtime, found func(candidate) *document.Finding) {
	unheld := make([]netip.Addr, 0, len(b.Reservations))
	for ip, reservation := range b.Reservations {
		if reservation.Sandbox != "" && runtime.full[short(reservation.Sandbox)] == "" && !r.Foreign[ip] {
			unheld = append(unheld, ip)
		}
	}
	slices.SortFunc(unheld, netip.Addr.Compare) // of too many always the same ones are found
	for _, ip := range unheld {
		f := found(candidate{owner{store: b.Store, ip: ip}, document.Unheld, b.Reservations[ip].Sandbox})
		if f == nil {
			continue
		}
		f.Book, f.CNINetwork = b.Book, b.Network
		if l, live := runtime.live[ip]; live { // to free the reservation would do harm
			f.Interface, f.Netns, f.Pod = l.Interface, l.Netns, document.NewPod(l.Pod)
		}
	}
}

// runtime is what the container runtime says of sandboxes.
type runtime struct {
	list pods.Sandboxes
	// full has the ids by their beginnings, pods the pods behind observed interfaces.
	full map[string]string
	pods map[string]detector.Pod
	// live has one holder of each address.
	live map[netip.Addr]*Live
}

func newRuntime(from *reading) runtime {
	list := from.sandboxes
	r := runtime{full: make(map[string]string, len(list.Ready)), list: list, pods: make(map[string]detector.Pod), live: make(map[netip.Addr]*Live, len(from.Live))}
	for id := range list.Ready {
		r.full[short(id)] = id
	}
	for n := range from.Live {
		l := &from.Live[n]
		r.pods[l.Sandbox], r.live[l.IP] = l.Pod, l
	}
	return r
}

func (r *runtime) isReady(short string) bool { return short != "" && r.list.Ready[r.full[short]] }

func short(id string) string { return id[:min(len(id), pods.ShortID)] }
