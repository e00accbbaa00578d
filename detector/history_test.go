package detector

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// past is a history of conflicts, each written as the last number of its address and its two holders: "1ab". The
// addresses from 8 on are those of drills.
type past struct {
	history
	entries map[byte]*entry
}

func newPast(conflicts string) *past {
	p := &past{history{shares: make(map[kind]*share)}, make(map[byte]*entry)}
	for _, c := range strings.Fields(conflicts) {
		e := p.entries[c[0]]
		if e == nil {
			e = &entry{key: Key{"default", netip.AddrFrom4([4]byte{10, 0, 0, c[0] - '0'})}}
			if c[0] >= '8' {
				e.key.IP = netip.AddrFrom4([4]byte{192, 0, 2, c[0] - '0'})
			}
			p.entries[c[0]] = e
		}
		e.occurrences++
		holders := []Binding{{Holder: Holder{ID: HolderID{Netns: uint64(c[1])}}}, {Holder: Holder{ID: HolderID{Netns: uint64(c[2])}}}}
		p.add(e, Conflict{ID: fmt.Sprintf("%s#%d", c, e.occurrences), Key: e.key, Holders: holders})
	}
	return p
}

func (p *past) String() string {
	var list []string
	for _, r := range p.list {
		c, _, _ := strings.Cut(r.ID, "#")
		list = append(list, c)
	}
	return strings.Join(list, " ")
}

// Of too many conflicts, the oldest of the kind that there are most of is dropped, and of an address an earlier one before the last.
func TestHistoryDrops(t *testing.T) {
	for name, tt := range map[string]struct {
		conflicts string
		most      int
		want      string
	}{
		"not too many":                   {"1ab 2ab 3ab", 3, "1ab 2ab 3ab"},
		"the oldest":                     {"1ab 2ab 3ab", 2, "2ab 3ab"},
		"of kinds with one each":         {"1ab 2cd 3ef", 2, "2cd 3ef"},
		"of the kind with most":          {"3cd 1ab 2ab", 2, "3cd 2ab"},
		"two holders in any order":       {"3cd 1ab 2ba", 2, "3cd 2ba"},
		"another second holder":          {"3cd 1ab 2ac", 2, "1ab 2ac"},
		"drills are one kind":            {"3ef 8ab 9cd", 2, "3ef 9cd"},
		"the last of its address stays":  {"1cd 1ab 2ab 3ab", 3, "1cd 1ab 3ab"},
		"an earlier one of its address":  {"1ab 1cd 2ab", 2, "1cd 2ab"},
		"all are the last: the earliest": {"1cd 2ef 1ab 2ab", 3, "2ef 1ab 2ab"},
		"several at once, from kinds":    {"5cd 1ab 2ab 3ab 4cd", 2, "3ab 4cd"},
		"all":                            {"1ab 2ab 3cd 8ab", 0, ""},
	} {
		p := newPast(tt.conflicts)
		before := len(p.list)
		var dropped []*entry
		for e := p.drop(tt.most); e != nil; e = p.drop(tt.most) {
			dropped = append(dropped, e)
		}
		if got := p.String(); got != tt.want || len(dropped) != before-len(p.list) {
			t.Errorf("%s: left %q, want %q; %d dropped", name, got, tt.want, len(dropped))
		}
		for _, r := range p.list { // the last one that is left has the number from which the next is counted
			if last := p.last(r.Key); !strings.HasSuffix(last.ID, fmt.Sprintf("#%d", r.entry.occurrences)) {
				t.Errorf("%s: the last of %v is %s of %d", name, r.Key, last.ID, r.entry.occurrences)
			}
		}
		shares := 0
		for _, s := range p.shares {
			shares += s.size
		}
		kept := 0
		for _, e := range p.entries {
			kept += e.kept
		}
		if shares != len(p.list) || kept != len(p.list) || len(p.list) == 0 && len(p.shares) != 0 {
			t.Errorf("%s: %d conflicts, %d in shares, %d of addresses", name, len(p.list), shares, kept)
		}
	}
}
