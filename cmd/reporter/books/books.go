// Package books reads what the API server has about addresses: pods, nodes and the objects of IPAMs. It compares them with what the agents
// observe, so that a duplicate is foreseen, and says of a conflict what the books have.
//
// Books are never evidence: nothing here decides whether there is a conflict, and the agents do not need them. An object may say
// anything, so everything is bounded, and a finding needs two readings. Calico's book ran with Calico's own programs; of the other IPAMs only
// the formats are known.
package books

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// Reservation is an address that a book has for a pod.
type Reservation struct {
	IP netip.Addr
	// Pod is "namespace/name", empty if the address is for no pod: a tunnel's, or one that must not be used yet.
	Pod string
	// Sandbox is the beginning of the sandbox's id, as [document.Pod] has it; empty if the book does not have it.
	Sandbox string
	Node    string
	Since   time.Time
	// Other is a second pod that may use the address, because it moves there. Shared: several pods may have the address at one time.
	Other  string
	Shared bool
}

// ipam is a book. The lock of [Books] guards it.
type ipam struct {
	format
	name    string
	sources []*source // the resources that it is read from
	// primary: its addresses are those that Pods have in the API server, and not those of second networks.
	primary bool
	// grace is how long a reservation that seems to be leaked is kept; zero if the IPAM frees none by itself.
	grace time.Duration
	nodes *nodeBook // the format, if it says which addresses and ranges each node has; else nil
}

// format is that of an IPAM's objects.
type format interface {
	// reservations returns all of them.
	reservations() iter.Seq[Reservation]
	// reservation returns that of an address.
	reservation(ip netip.Addr) (Reservation, bool)
	// pool returns the name of the range that the book gives an address out of, empty for none.
	pool(ip netip.Addr) string
	// object is where a reservation is, or would be: of one that does not exist only the address is known.
	object(r Reservation) place
	// pools returns how many addresses of each pool there are, and are left.
	pools() iter.Seq2[string, Left]
	// ended returns the reservations that have ended since the last call, if they are not too many.
	ended() []ended
}

// ended is a reservation that has ended.
type ended struct {
	Reservation
	at time.Time
}

// document is the reservation as documents have it, with the end that it may have.
func (r Reservation) document(until time.Time) *document.Reservation {
	return &document.Reservation{Sandbox: r.Sandbox, Pod: podOf(r.Pod), Node: r.Node, Since: r.Since, Until: until}
}

// Left is how many addresses of a pool there are, and are left.
type Left struct{ All, Left float64 }

// The books by name, in the order in which they are listed: a new one is an entry here, a file, and its rights in the chart.
var ipams = []struct {
	name string
	make func() *ipam
}{
	{"calico", newCalico},
	// Format only: these never ran with the real system.
	{"whereabouts", newWhereabouts},
	{"cilium", newCilium},
	{"azure", newAzure},
}

// Names are those of all books.
func Names() (names []string) {
	names = []string{document.Kubernetes}
	for _, i := range ipams {
		names = append(names, i.name)
	}
	return names
}

// Auto is the setting for all books that the API server has.
const Auto = "auto"

// Parse reads which books are to be read: "auto", "off", or names with commas between them. Pods and Nodes are always among them.
func Parse(setting string) (names []string, auto bool, err error) {
	switch setting {
	case Auto:
		return Names(), true, nil
	case "off":
		return nil, false, nil
	}
	names = strings.Split(setting, ",")
	for _, name := range names {
		if !slices.Contains(Names(), name) {
			return nil, false, fmt.Errorf("--books %q: must be auto, off, or some of %s", setting, strings.Join(Names(), ","))
		}
	}
	return names, false, nil
}

// Options configures [Books]. All fields must be set.
type Options struct {
	Log *slog.Logger
	API *kube.Client
	// Names are the books to read. Auto: the resources of those that do not exist are passed over.
	Names []string
	Auto  bool
	// Nodes asks agents.
	Nodes interface {
		Query(ctx context.Context, q cluster.Query, answer func(cluster.Member, []byte) error) (silent []cluster.Member, err error)
	}
	// Answers reports whether the API server answers: nothing is compared while it does not.
	Answers func() bool
	Rules   merge.Rules
}

// Books reads books while it runs. Its methods are safe for concurrent use.
type Books struct {
	opts Options

	mu      sync.Mutex
	running bool
	pods    *pods
	nodes   *nodes
	ipams   []*ipam // those that are read
	wire    wire
	comparison
}

// New returns the books, which are not read yet.
func New(opts Options) *Books {
	return &Books{opts: opts, wire: newWire()}
}

// Run reads the books until ctx ends, and forgets them then: another replica reads them.
func (b *Books) Run(ctx context.Context) {
	if len(b.opts.Names) == 0 {
		return
	}
	b.mu.Lock()
	b.reset()
	b.running = true
	list := b.sources()
	b.mu.Unlock()
	var parts sync.WaitGroup
	for _, s := range list {
		parts.Go(func() { s.follow(ctx, b) })
	}
	parts.Go(func() { b.ask(ctx) })
	parts.Go(func() { b.compare(ctx) })
	parts.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reset()
	b.running = false
	b.wire.forget()
}

// reset makes all books empty.
func (b *Books) reset() {
	b.pods, b.nodes, b.ipams, b.comparison = newPods(), newNodes(), nil, newComparison()
	for _, i := range ipams {
		if slices.Contains(b.opts.Names, i.name) {
			made := i.make()
			made.name = i.name
			b.ipams = append(b.ipams, made)
		}
	}
}

// current reports whether all sources are read and watched now.
func current(list ...*source) bool {
	return !slices.ContainsFunc(list, func(s *source) bool { return s.state != watched })
}

// Findings returns what the comparison has found, and what is not compared, and why.
func (b *Books) Findings() document.Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.opts.Names) == 0:
		return document.Answer{}
	case !b.running:
		return document.Answer{Unchecked: []string{"the books of the API server: another reporter reads them"}}
	}
	a := document.Answer{Findings: slices.Clone(b.found), Omitted: b.omitted}
	a.Checked, a.Unchecked = b.checked()
	document.Clean(&a, 0, time.Time{})
	return a
}

// Of returns what the books of IPAMs say of an address.
func (b *Books) Of(ip netip.Addr) (list []document.Book) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, book := range b.ipams {
		if !b.running || !b.opts.Answers() || !current(book.sources...) {
			continue
		}
		r, reserved := book.reservation(ip)
		pool := book.pool(ip)
		earlier := b.earlier(book, ip)
		if list = append(list, earlier...); len(earlier) > 0 || !reserved && pool == "" {
			continue
		}
		doc := document.Book{Kind: book.name, CNINetwork: pool, Covers: true}
		switch {
		case r.Shared:
			doc.Error = "several pods may have the address: a virtual machine moves from one to the other"
		case reserved:
			doc.Reservation = r.document(time.Time{})
		}
		if f, known := b.former[ip]; known && f.book == book.name {
			doc.Former = f.document(f.at)
		}
		list = append(list, doc)
	}
	document.Clean(&list, 0, time.Time{})
	return list
}

// earlier returns what the objects of nodes say of an address that belong to earlier nodes of their names, by the findings.
func (b *Books) earlier(book *ipam, ip netip.Addr) (list []document.Book) {
	for _, f := range b.found {
		if f.Kind == document.Stale && f.Book == book.name && book.nodes.gives(f.Node, ip) {
			list = append(list, document.Book{Kind: book.name, Covers: true, Reservation: &document.Reservation{Node: f.Node}, OwnerUID: f.OwnerUID})
		}
	}
	return list
}

// About adds to a conflict what the books say: of its address, and of its holders.
func (b *Books) About(c *document.Conflict) {
	c.Books = append(slices.Clone(c.Books), b.Of(c.IP)...)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running || !b.opts.Answers() || !current(b.pods.source, b.nodes.source) {
		return
	}
	c.Holders = slices.Clone(c.Holders)
	for i := range c.Holders {
		h := &c.Holders[i]
		h.Listing = new(document.Listing)
		if p := h.Pod; p != nil && !p.IsContainer() {
			switch made := b.pods.of(&held{node: h.Node, pod: p.String(), uid: p.UID}); {
			case made == nil:
				h.Listing.Pod = document.PodUnlisted
			case made.ending:
				h.Listing.Pod = document.PodEnding
			default:
				h.Listing.Pod = document.PodListed
			}
		}
		if b.named && b.isDeleted(h.Node) {
			h.Listing.NodeDeleted = cmp.Or(b.nodes.deleted[h.Node], b.at).Round(0)
		}
	}
}
