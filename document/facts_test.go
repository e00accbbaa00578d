package document

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/gossip/wire"
)

// Only what a node may say of its own holder arrives; what is invalid is left out, and the rest stays.
func TestFactsOfOthers(t *testing.T) {
	c := fullAnswer(noon).Conflicts[0]
	own, ip := *c.Holders[0].Facts, c.IP
	for name, change := range map[string]func(hostile *Facts, want *Facts){
		"as they are":            func(_, _ *Facts) {},
		"nothing is known":       func(hostile, want *Facts) { *hostile, *want = Facts{}, Facts{} },
		"a manager that is none": func(hostile, want *Facts) { hostile.Machine.Manager, want.Machine.Manager = "; reboot", "" },
		"what is behind it":      func(hostile, want *Facts) { hostile.Behind, want.Behind = "a pod; rm -rf /", "" },
		"many addresses": func(hostile, want *Facts) {
			hostile.GivenOthers = slices.Repeat(hostile.GivenOthers[:1], 100)
			want.GivenOthers = hostile.GivenOthers[:MaxGivenOthers]
		},
		"its own address": func(hostile, want *Facts) {
			hostile.GivenOthers, want.GivenOthers = []netip.Addr{ip, {}}, []netip.Addr{}
		},
		"a zone": func(hostile, want *Facts) {
			hostile.GivenOthers, want.GivenOthers = []netip.Addr{netip.MustParseAddr("fe80::1%x")}, []netip.Addr{}
		},
		"no process": func(hostile, want *Facts) { hostile.Process, want.Process = &Process{PID: -1, Command: "cat"}, nil },
		"a long command": func(hostile, want *Facts) {
			hostile.Process, want.Process = &Process{PID: 1, Command: strings.Repeat("\x1b", 99)}, &Process{PID: 1, Command: strings.Repeat("?", 12) + "…"}
		},
		"another's address": func(hostile, want *Facts) {
			hostile.Machine, want.Machine = &Machine{Device: "eth0", Prefix: netip.MustParsePrefix("10.0.0.1/24")}, nil
		},
		"no prefix": func(hostile, want *Facts) { hostile.Machine, want.Machine = &Machine{Device: "eth0"}, nil },
		"no device": func(hostile, want *Facts) { hostile.Machine, want.Machine = &Machine{Prefix: own.Machine.Prefix}, nil },
	} {
		hostile, want := own, own
		change(&hostile, &want)
		c.Holders[0].Facts = &hostile
		got := said(t, Answer{At: noon, Conflicts: []Conflict{c}, Stories: []Story{{Network: c.Network, IP: ip, Bindings: c.Holders, Conflict: &c, Former: c.Holders}}})
		for _, b := range []Binding{got.Conflicts[0].Holders[0], got.Stories[0].Conflict.Holders[0]} {
			if diff := cmp.Diff(&want, b.Facts, compare); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		if s := got.Stories[0]; s.Bindings[0].Facts != nil || s.Former[0].Facts != nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	for _, path := range []string{"run/netns/x", "/run/../x", "/run/netns/$(reboot)", "/run/netns/a b", "/", "/run//x", "/run/-x/", "/" + strings.Repeat("x", MaxName)} {
		hostile := own
		hostile.NetnsPath = path
		if hostile.Check(ip); hostile.NetnsPath != "" {
			t.Errorf("%s is a path", path)
		}
	}
	for name, change := range map[string]func(*Binding){
		"another node's": func(b *Binding) { b.Node = "n2" },
		"another boot's": func(b *Binding) { b.BootID = "b2" },
		"nobody's":       func(b *Binding) { b.BootID = "" },
	} {
		c := fullAnswer(noon).Conflicts[0]
		c.Shared, c.Judgement = -1, &Judgement{Cause: CauseByHand}
		if change(&c.Holders[0]); c.Holders[0].Facts == nil {
			t.Fatal("no facts")
		}
		got := said(t, Answer{At: noon, Conflicts: []Conflict{c}}).Conflicts[0]
		if got.Holders[0].Facts != nil || got.Holders[1].Facts == nil || got.Shared != 0 || got.Judgement != nil {
			t.Errorf("%s facts: %+v", name, got)
		}
	}
}

// A report has the facts of its node's holders. From one that is too long paths go first, and last what is behind a holder.
func TestFactsOfReport(t *testing.T) {
	node := realNode()
	told := conflictOf(2, func() string { return node }, nil)
	c := NewConflict(told)
	c.Books = []Book{{Node: "n1", Kind: "host-local", CNINetwork: "pods", Covers: true, Range: "10.0.0.1-10.0.0.254"}}
	for i := range c.Holders {
		c.Holders[i].Facts = &Facts{
			Behind: BehindAlive, GivenOthers: []netip.Addr{netip.MustParseAddr("10.0.0.9")}, NetnsPath: fmt.Sprint("/run/netns/cni-", i), NetnsInode: 4026531840,
			Process: &Process{PID: 7, Command: "cat"},
		}
	}
	before := asJSON(t, c)
	had := map[string]bool{}
	for limit := wire.MaxReport; ; limit-- {
		packed, err := c.EncodeReport(noon, limit)
		if err != nil {
			break
		}
		got, err := DecodeReport(packed, node, noon)
		if err != nil {
			t.Fatal(err)
		}
		sameIDs(t, told, got)
		f := got.Holders[1].Facts
		state := fmt.Sprintf("path %t, books %t, given %t", f.NetnsPath != "", got.Books != nil, f.GivenOthers != nil)
		if had[state] = true; f.Behind != BehindAlive || f.NetnsPath != "" && got.Books == nil || got.Books != nil && f.GivenOthers == nil {
			t.Errorf("in %d bytes: %s, %+v", limit, state, f)
		}
	}
	if len(had) != 4 || asJSON(t, c) != before {
		t.Errorf("steps: %v", had)
	}
}
