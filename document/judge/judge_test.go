package judge

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// judges is [Of], or one that is broken on purpose.
type judges func(document.Conflict, Context) *document.Judgement

var (
	now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	at  = netip.MustParseAddr("10.0.0.9")
	ctx = Context{Now: now}
)

// The combinations: each field has a value of each list, for each holder.
var (
	behinds  = []document.Behind{"", document.BehindRunning, document.BehindStopped, document.BehindForgotten}
	givens   = []detector.Given{detector.GivenUnknown, detector.GivenYes, detector.GivenNo}
	reserved = []string{"unread", "nobody", "0", "1", "2", "several", "error"} // by the book of a node
)

// made is one combination for so many holders.
func made(r *rand.Rand, holders int) document.Conflict {
	pick := func(n int) int { return r.IntN(n) }
	c := document.Conflict{
		ID: "1-1", Network: "default", IP: at, State: detector.Confirmed, ConfirmedAt: now.Add(-time.Minute), Shared: []int{0, 0, 0, 9}[pick(4)],
	}
	for n := range holders {
		node := fmt.Sprintf("n%d", pick(3))
		b := document.Binding{
			Network: "default", IP: at, Evidence: detector.Claimed,
			Holder: document.Holder{
				Node: node, BootID: "boot-" + node, NetnsCookie: uint64(n + 1), Given: givens[pick(3)],
				Pod: &document.Pod{Namespace: "shop", Name: fmt.Sprintf("web-%d", n), UID: fmt.Sprint("uid-", n), Sandbox: fmt.Sprint("sandbox-", n)},
			},
			FirstSeen: now.Add(-time.Duration(2+pick(4)) * time.Minute), FoundAtStart: pick(4) == 0, Unreachable: pick(12) == 0, Gone: pick(12) == 0,
			Facts: &document.Facts{Behind: behinds[pick(4)], CNINetwork: []string{"net", "net", "net", "other", ""}[pick(5)]},
		}
		switch pick(10) {
		case 0:
			b.BootID = "another" // a namesake
		case 1:
			b.Pod.Name = "web-0"
		case 2:
			b.Pod.Name, b.Pod.UID = "web-0", "uid-0"
		}
		if pick(3) > 0 {
			b.Pod.CreatedAt = b.FirstSeen.Add(-time.Duration(pick(3)) * time.Minute)
		}
		if b.Given == detector.GivenUnknown && pick(4) == 0 {
			b.Facts.GivenOthers = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		}
		if pick(8) == 0 {
			b.Evidence, b.Pod, b.Given = detector.Host, nil, detector.GivenUnknown
			b.Facts = &document.Facts{Machine: &document.Machine{Device: "eth1", Prefix: netip.PrefixFrom(at, 24), Dynamic: pick(2) == 0}}
			if pick(4) > 0 {
				b.Facts.Machine.Since = now.Add(-time.Duration(1+pick(6)) * time.Minute)
			}
		}
		c.Holders = append(c.Holders, b)
	}
	seen := make(map[string]bool)
	for _, b := range c.Holders {
		if seen[b.NodeID()] {
			continue
		}
		seen[b.NodeID()] = true
		book := document.Book{Node: b.Node, BootID: b.BootID, Kind: "host-local", CNINetwork: "net", Covers: pick(4) > 0}
		switch what := reserved[pick(len(reserved))]; what {
		case "unread":
			continue
		case "nobody":
		case "error":
			book.Error = "cannot be read"
		case "several":
			book.Reservation = &document.Reservation{Sandboxes: []string{fmt.Sprint("sandbox-", pick(4)), fmt.Sprint("sandbox-", pick(4))}}
		default:
			book.Reservation = &document.Reservation{Sandbox: "sandbox-" + what}
		}
		if c.Books = append(c.Books, book); pick(6) == 0 {
			book.CNINetwork, book.Reservation, book.Error = "other", nil, ""
			c.Books = append(c.Books, book)
		}
	}
	if pick(3) == 0 {
		booked(&c, pick)
	}
	return c
}

// booked gives a conflict what only a reporter knows: the book that the address is of is that of the whole cluster, or none.
func booked(c *document.Conflict, pick func(int) int) {
	c.Books = nil
	for n := range c.Holders {
		b := &c.Holders[n]
		if pick(2) == 0 && b.Evidence != detector.Host {
			b.Given, b.Facts.GivenOthers = detector.GivenYes, nil // mostly the others decide
		}
		if b.Listing = new(document.Listing); b.Pod != nil {
			b.Listing.Pod = []string{"", document.PodListed, document.PodListed, document.PodEnding, document.PodUnlisted, document.PodUnlisted}[pick(6)]
		}
		if pick(4) == 0 {
			b.Listing.NodeDeleted = now.Add(-time.Minute)
		}
	}
	if pick(5) == 0 {
		return
	}
	book := document.Book{Kind: "calico", CNINetwork: "pool", Covers: true}
	if of := pick(5); of < 4 { // the last ones are nobody's
		name := fmt.Sprintf("web-%d", of)
		book.Reservation = &document.Reservation{Pod: &document.Pod{Namespace: "shop", Name: name}, Node: fmt.Sprintf("n%d", pick(3))}
		if pick(3) > 0 {
			book.Reservation.Sandbox = fmt.Sprint("sandbox-", of)
		}
	}
	c.Books = []document.Book{book}
}

// keepsFor reports whether the book of the whole cluster keeps the address for another live holder than n.
func keepsFor(c document.Conflict, n int) bool {
	if len(c.Books) != 1 || c.Books[0].Node != "" || c.Books[0].Reservation == nil {
		return false
	}
	r := c.Books[0].Reservation
	for m, o := range c.Holders {
		if m != n && isLive(o) && o.Pod != nil && (r.Sandbox == o.Pod.Sandbox || r.Sandbox == "" && r.Pod.Name == o.Pod.Name) {
			return true
		}
	}
	return false
}

// fewer returns the conflict without one fact, for each fact.
func fewer(c document.Conflict) (list []document.Conflict) {
	without := func(change func(*document.Conflict)) {
		less := c
		less.Holders, less.Books = slices.Clone(c.Holders), slices.Clone(c.Books)
		for n := range less.Holders {
			if p := less.Holders[n].Pod; p != nil {
				less.Holders[n].Pod = new(*p)
			}
			if f := less.Holders[n].Facts; f != nil {
				less.Holders[n].Facts = new(*f)
			}
			if l := less.Holders[n].Listing; l != nil {
				less.Holders[n].Listing = new(*l)
			}
		}
		change(&less)
		list = append(list, less)
	}
	for n := range c.Holders {
		without(func(c *document.Conflict) { c.Holders[n].Facts.Behind = "" })
		without(func(c *document.Conflict) { c.Holders[n].Facts.GivenOthers = nil })
		without(func(c *document.Conflict) { c.Holders[n].Facts.CNINetwork = "" })
		without(func(c *document.Conflict) { c.Holders[n].Facts.Machine = nil })
		without(func(c *document.Conflict) { c.Holders[n].Facts = nil })
		if c.Holders[n].Listing != nil {
			without(func(c *document.Conflict) { c.Holders[n].Listing.NodeDeleted = time.Time{} })
			without(func(c *document.Conflict) { c.Holders[n].Listing = nil })
		}
		without(func(c *document.Conflict) { c.Holders[n].Given = detector.GivenUnknown })
		if c.Holders[n].Pod != nil {
			without(func(c *document.Conflict) { c.Holders[n].Pod.CreatedAt = time.Time{} })
			without(func(c *document.Conflict) { c.Holders[n].Pod.Sandbox = "" })
			without(func(c *document.Conflict) { c.Holders[n].Pod.UID = "" })
			without(func(c *document.Conflict) { c.Holders[n].Pod = nil })
		}
	}
	for _, b := range c.Holders { // a node reads all its books at once
		without(func(c *document.Conflict) {
			c.Books = slices.DeleteFunc(c.Books, func(k document.Book) bool { return k.NodeID() == b.NodeID() })
		})
	}
	without(func(c *document.Conflict) {
		c.Books = slices.DeleteFunc(c.Books, func(k document.Book) bool { return k.Node == "" })
	})
	without(func(c *document.Conflict) { c.Shared = 0 })
	return list
}

// law is one law: it returns what breaks it.
type law struct {
	name  string
	check func(of judges, c document.Conflict, v []document.Judged) string
}

// isLive reports whether a holder may be alive.
func isLive(b document.Binding) bool {
	return !b.Gone && (b.Facts == nil || b.Facts.Behind != document.BehindStopped && b.Facts.Behind != document.BehindForgotten)
}

var laws = []law{
	{"a live holder that was given the address stays while another one is not known to have been given it", func(_ judges, c document.Conflict, v []document.Judged) string {
		for n, b := range c.Holders {
			if !isGiven(b) || !isLive(b) || v[n].Verdict != document.Remove || v[n].Reason == document.ReasonOnNode {
				continue
			}
			for m, o := range c.Holders {
				if m != n && isLive(o) && !isHost(o) && !isGiven(o) && v[m].Verdict != document.Remove {
					return fmt.Sprintf("%d goes, and %d may not have been given it", n, m)
				}
			}
		}
		return ""
	}},
	{"a pod goes for a node's address only if that is permanent or older", func(_ judges, c document.Conflict, v []document.Judged) string {
		for n, b := range c.Holders {
			if v[n].Reason != document.ReasonOnNode || !isGiven(b) {
				continue
			}
			if !slices.ContainsFunc(c.Holders, func(o document.Binding) bool {
				return isHost(o) && o.Facts != nil && o.Facts.Machine != nil && (!o.Facts.Machine.Dynamic || !o.Facts.Machine.Since.IsZero() && o.Facts.Machine.Since.Before(b.Pod.CreatedAt))
			}) {
				return fmt.Sprintf("%d goes", n)
			}
		}
		return ""
	}},
	{"what nothing is alive behind goes first", func(_ judges, c document.Conflict, v []document.Judged) string {
		if namesakes(c) {
			return ""
		}
		for n, b := range c.Holders {
			if !isLive(b) && v[n].Verdict != document.Remove {
				return fmt.Sprintf("%d stays", n)
			}
		}
		return ""
	}},
	{"the successor of what was removed does not collide again", func(_ judges, c document.Conflict, v []document.Judged) string {
		for n, b := range c.Holders {
			if v[n].Verdict != document.Remove || !isLive(b) || !isGiven(b) || v[n].Reason == document.ReasonOnNode {
				continue
			}
			if keepsFor(c, n) {
				continue
			}
			// Whatever its book has for it is freed with it, and what nobody has reserved is given out again.
			if !slices.ContainsFunc(c.Books, func(k document.Book) bool {
				return k.NodeID() == b.NodeID() && b.Facts != nil && k.CNINetwork == b.Facts.CNINetwork && k.Reservation != nil && !slices.Contains(append(k.Reservation.Sandboxes, k.Reservation.Sandbox), b.Pod.Sandbox)
			}) {
				return fmt.Sprintf("the book of %d gives the address out again", n)
			}
			if slices.ContainsFunc(c.Books, func(k document.Book) bool { return k.NodeID() == b.NodeID() && k.Covers && k.Reservation == nil }) {
				return fmt.Sprintf("another book of the node of %d gives the address out again", n)
			}
			if v[n].Reason == document.ReasonNotReserved && slices.ContainsFunc(c.Holders, func(o document.Binding) bool {
				return isLive(o) && !isHost(o) && o.NodeID() != b.NodeID() && isGiven(o)
			}) {
				return fmt.Sprintf("the nodes of %d and of another one share a range", n)
			}
		}
		return ""
	}},
	{"namesakes, clones and unreachable nodes: no live holder goes", func(_ judges, c document.Conflict, v []document.Judged) string {
		live, lost, clones := 0, false, false
		for n, b := range c.Holders {
			if isLive(b) {
				live++
				lost = lost || b.Unreachable
				for _, o := range c.Holders[:n] {
					clones = clones || isLive(o) && b.Pod != nil && o.Pod != nil && b.Pod.UID == o.Pod.UID && b.Pod.Name == o.Pod.Name && b.NodeID() != o.NodeID()
				}
			}
		}
		if live < 2 || !lost && !clones && !namesakes(c) {
			return ""
		}
		for n, b := range c.Holders {
			if v[n].Verdict == document.Remove && isLive(b) {
				return fmt.Sprintf("%d goes", n)
			}
		}
		return ""
	}},
	{"fewer facts give the same order or none", func(of judges, c document.Conflict, v []document.Judged) string {
		for i, less := range fewer(c) {
			for n, w := range byHolder(of(less, ctx)) {
				if w.Verdict != document.Open && w.Verdict != v[n].Verdict {
					return fmt.Sprintf("without fact %d holder %d is %s (%s), with it %s (%s)", i, n, w.Verdict, w.Reason, v[n].Verdict, v[n].Reason)
				}
			}
		}
		return ""
	}},
	{"the order of the holders does not matter", func(of judges, c document.Conflict, v []document.Judged) string {
		turned := c
		turned.Holders = slices.Clone(c.Holders)
		slices.Reverse(turned.Holders)
		w := byHolder(of(turned, ctx))
		for n := range v {
			if m := len(v) - 1 - n; v[n].Verdict != w[m].Verdict || v[n].Reason != w[m].Reason || v[n].By != w[m].By {
				return fmt.Sprintf("%d: %+v, turned %+v", n, v[n], w[m])
			}
		}
		return ""
	}},
	{"somebody stays, and who stays is alive", func(_ judges, c document.Conflict, v []document.Judged) string {
		live, left := 0, 0
		for n, b := range c.Holders {
			if isLive(b) {
				live++
			}
			if v[n].Verdict != document.Remove {
				left++
			}
			if v[n].Verdict == document.Keep && (!lives(b) || b.Unreachable) {
				return fmt.Sprintf("%d is not known to be alive", n)
			}
		}
		if live > 0 && left == 0 {
			return "all go"
		}
		return ""
	}},
	{"age alone decides nothing where a plugin may have given the address", func(_ judges, c document.Conflict, v []document.Judged) string {
		for n := range c.Holders {
			if v[n].Reason == document.ReasonNewer && slices.ContainsFunc(c.Holders, func(b document.Binding) bool { return isLive(b) && !wasNotGiven(b) }) {
				return fmt.Sprintf("%d goes", n)
			}
		}
		return ""
	}},
	{"what only other nodes say of a holder does not remove it", func(of judges, c document.Conflict, _ []document.Judged) string {
		for n := range c.Holders {
			hearsay := c
			hearsay.Holders = slices.Clone(c.Holders)
			hearsay.Holders[n].Facts = nil
			if v := byHolder(of(hearsay, ctx))[n]; v.Verdict == document.Remove && !c.Holders[n].Gone {
				return fmt.Sprintf("%d goes", n)
			}
		}
		return ""
	}},
	{"what decides by another node's word only is marked", func(of judges, c document.Conflict, v []document.Judged) string {
		for n, b := range c.Holders {
			if v[n].Verdict != document.Remove || v[n].By != "" || !isLive(b) {
				continue
			}
			alone := c
			alone.Holders = slices.DeleteFunc(slices.Clone(c.Holders), func(o document.Binding) bool { return o.NodeID() != b.NodeID() })
			m := slices.IndexFunc(alone.Holders, func(o document.Binding) bool { return o.ID() == b.ID() })
			if w := byHolder(of(alone, ctx))[m]; w.Verdict != document.Remove {
				return fmt.Sprintf("%d goes, and its node alone says %s", n, w.Verdict)
			}
		}
		return ""
	}},
	{"another node's book decides nothing", func(of judges, c document.Conflict, v []document.Judged) string {
		lies := c
		lies.Books = append(slices.Clone(c.Books), document.Book{
			Node: "n9", BootID: "boot-n9", Kind: "host-local", CNINetwork: "net", Covers: true,
			Reservation: &document.Reservation{Sandbox: "sandbox-0"},
		})
		for n, w := range byHolder(of(lies, ctx)) {
			if w != v[n] {
				return fmt.Sprintf("%d: %+v with it, %+v without", n, w, v[n])
			}
		}
		return ""
	}},
}

// namesakes reports whether holders that have not gone are on two nodes of one name.
func namesakes(c document.Conflict) bool {
	for n, b := range c.Holders {
		for _, o := range c.Holders[:n] {
			if !b.Gone && !o.Gone && !b.Unreachable && !o.Unreachable && b.Node == o.Node && b.BootID != o.BootID {
				return true
			}
		}
	}
	return false
}

// byHolder returns the verdicts by the index of the holder.
func byHolder(j *document.Judgement) []document.Judged {
	list := make([]document.Judged, len(j.Holders))
	for _, v := range j.Holders {
		list[v.Holder] = v
	}
	return list
}

// broken returns the first of these laws that is broken within so many combinations, and how, and how many were decided.
func broken(of judges, laws []law, combinations int) (name, how string, decided int) {
	r := rand.New(rand.NewPCG(1, 37))
	for range combinations {
		c := made(r, 2+r.IntN(2))
		j := of(c, ctx)
		if j.Confidence != document.Undecided {
			decided++
		}
		v := byHolder(j)
		for _, l := range laws {
			if how := l.check(of, c, v); how != "" {
				return l.name, fmt.Sprintf("%s\n%s", how, describe(c, j)), decided
			}
		}
	}
	return "", "", decided
}

func describe(c document.Conflict, j *document.Judgement) (text string) {
	for n, b := range c.Holders {
		text += fmt.Sprintf("%d: %s given=%v evidence=%s gone=%t unreachable=%t first=%s found=%t pod=%+v facts=%+v", n, b.NodeID(), b.Given, b.Evidence, b.Gone, b.Unreachable, b.FirstSeen.Format("15:04"), b.FoundAtStart, b.Pod, b.Facts)
		if b.Facts != nil && b.Facts.Machine != nil {
			text += fmt.Sprintf(" machine=%+v", *b.Facts.Machine)
		}
		text += "\n"
	}
	for _, k := range c.Books {
		text += fmt.Sprintf("book %+v %+v\n", k, k.Reservation)
	}
	return text + fmt.Sprintf("%+v", *j)
}

// combinations is how many are tried.
const combinations = 50_000

// TestLaws tries the laws over generated combinations of facts.
func TestLaws(t *testing.T) {
	name, how, decided := broken(Of, laws, combinations)
	if name != "" {
		t.Fatalf("%s: %s", name, how)
	}
	t.Logf("%d laws hold in %d combinations of facts, of which %d are decided", len(laws), combinations, decided)
	if decided < combinations/4 {
		t.Error("too few are decided")
	}
}
