package audit

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/dupip/dupip/agent/books"
)

// maxElsewhere bounds the networks without a book that are named.
const maxElsewhere = 16

// Unchecked is what was not looked for, and why: in one network of CNI's configuration, or in all if Network is empty. NoBook: because the
// node has no book that an agent reads. A reporter may read the one of its IPAM.
type Unchecked struct {
	Network, Text string
	NoBook        bool
}

// unchecked says what a reading has not looked for; the error is that of the books. Blind: it is everything. Then the comparison
// begins again.
func (a *Audit) unchecked(r *reading, err error) (list []Unchecked, blind bool) {
	add := func(network, format string, args ...any) {
		list = append(list, Unchecked{Network: network, Text: fmt.Sprintf(format, args...)})
	}
	noBook := errors.Is(err, books.ErrNoFolder)
	if err != nil && len(r.books) > 0 {
		add("", "some networks: %v", err)
	} else if err != nil {
		add("", "everything: %v", err)
		list[0].NoBook = noBook
	}
	readable := 0
	for _, b := range r.books {
		if b.Err != nil {
			add(b.Network, "network %s: %v", b.Network, b.Err)
		} else {
			readable++
		}
	}
	switch {
	case readable == 0 && len(list) == 0:
		add("", "everything: no network in %s (--cni-conf-dir) has its addresses from host-local or Azure CNS, the only books that an agent reads", a.opts.Books.Folder())
		list[0].NoBook = true
	case readable == 0:
	case r.sandboxes.Listed.IsZero():
		add("", "everything: the container runtime has not answered, so it is not known which sandboxes there are")
	case !a.comparison.settled:
		add("", "everything: the agent has just begun to compare, and two readings must agree")
		return list, true
	default:
		return append(list, r.partly(a.comparison.early)...), false
	}
	a.comparison.restart()
	return list, true
}

// partly says what was not looked for, where something was.
func (r *reading) partly(early int) (list []Unchecked) {
	add := func(network, format string, args ...any) {
		list = append(list, Unchecked{Network: network, Text: fmt.Sprintf(format, args...)})
	}
	for _, b := range r.books {
		if b.Err == nil && len(b.Ranges) == 0 {
			add(b.Network, "network %s: its range is not known, so only lost reservations that the agent has seen are found", b.Network)
		}
	}
	for _, b := range r.books {
		if b.Err == nil && !slices.Contains(vethPlugins, b.Plugin) {
			add(b.Network, "network %s: reservations that nobody holds, because the interfaces of its plugin %s are not seen", b.Network, b.Plugin)
		}
	}
	const unheld = "reservations that nobody holds: "
	switch {
	case !r.sandboxes.Complete:
		add("", unheld+"the container runtime's list of sandboxes is not complete")
	case r.Hidden != "":
		add("", unheld+"interface %s is not observed, and its pod may hold them", r.Hidden)
	case early > 0:
		add("", unheld+"%d, because the agent has not looked at them for --unheld-after yet", early)
	}
	return append(list, r.elsewhere()...)
}

// elsewhere says which networks of pods have no book, and of how many addresses the network is not known.
func (r *reading) elsewhere() (list []Unchecked) {
	networks, unnamed, runtime := make(map[string]bool), 0, newRuntime(r)
	for _, l := range r.Live {
		has := func(b *books.Reserved) bool { return b.Network == l.Network || isOwn(b, l) }
		switch {
		case l.Drill, l.Secondary, slices.ContainsFunc(r.books, has), !runtime.isReady(l.Sandbox):
		case l.Network == "":
			unnamed++
		default:
			networks[l.Network] = true
		}
	}
	if unnamed > 0 {
		list = append(list, Unchecked{Text: fmt.Sprintf("addresses that were never reserved: of %d addresses of pods libcni's cache does not name the interface", unnamed)})
	}
	names := slices.Sorted(maps.Keys(networks))
	for _, name := range names[:min(len(names), maxElsewhere)] {
		list = append(list, Unchecked{Network: name, Text: "network " + name + ": it has no book that dupip reads, and pods have addresses of it"})
	}
	if more := len(names) - maxElsewhere; more > 0 {
		list = append(list, Unchecked{Text: fmt.Sprintf("%d more networks without a book that dupip reads", more)})
	}
	return list
}

// isOwn reports whether a book has an address of a pod reserved for that pod.
func isOwn(b *books.Reserved, l Live) bool {
	r, reserved := b.Reservations[l.IP]
	return reserved && l.Sandbox != "" && short(r.Sandbox) == l.Sandbox
}

// Checked returns the networks of CNI's configuration whose books were compared with what is asked for: one network, unless that
// is empty, addresses of a prefix, unless that is invalid, and pods, unless selects is nil.
func (r *Result) Checked(network string, prefix netip.Prefix, selects func(Live) bool) (networks []string) {
	if r.Blind {
		return nil
	}
	for _, b := range r.Books {
		compared := func(l Live) bool {
			return selects(l) && (!prefix.IsValid() || prefix.Contains(l.IP)) && (isOwn(b, l) || l.Network == b.Network && b.Covers(l.IP))
		}
		switch {
		case b.Err != nil, network != "" && b.Network != network:
		case selects != nil && !slices.ContainsFunc(r.live, compared), selects == nil && prefix.IsValid() && !has(b, prefix):
		default:
			networks = append(networks, b.Network)
		}
	}
	return networks
}

// has reports whether a book gives out an address of a prefix, or has one reserved.
func has(b *books.Reserved, prefix netip.Prefix) bool {
	prefix = prefix.Masked()
	gives := func(r books.Range) bool {
		first := prefix.Addr()
		if prefix.IsSingleIP() {
			return r.Contains(first)
		}
		return prefix.Contains(r.First) || prefix.Contains(r.Last) || r.First.Compare(first) <= 0 && first.Compare(r.Last) <= 0
	}
	return slices.ContainsFunc(b.Ranges, gives) || slices.ContainsFunc(slices.Collect(maps.Keys(b.Reservations)), prefix.Contains)
}
