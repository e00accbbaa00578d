package wire

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

func sampleFinding() cluster.Finding {
	return cluster.Finding{
		Kind: "mismatched", IP: v4.IP, Book: "host-local", Network: "pods", Store: "/var/lib/cni/networks/pods", Since: ago(time.Minute),
		Interface: "veth7", Netns: "cni-7", Pod: detector.Pod{Namespace: "shop", Name: "web-0", UID: "u-0"}, Sandbox: strings.Repeat("a", 64), Given: detector.GivenYes,
		ReservedFor: strings.Repeat("b", 64), ReservedPod: detector.Pod{Namespace: "shop", Name: "web-1", UID: "u-1"},
	}
}

func sampleFindings() cluster.Document {
	return cluster.Document{
		Findings: []cluster.Finding{sampleFinding(), {Kind: "unheld", IP: v6.IP, ReservedFor: "c"}},
		Books: []cluster.Book{
			{
				Kind: "host-local", Network: "pods", First: netip.MustParseAddr("10.1.2.1"), Last: netip.MustParseAddr("10.1.2.254"),
				Reserved: true, Since: ago(time.Hour), Sandbox: "0123456789abc", Pod: detector.Pod{Namespace: "shop", Name: "web-1", UID: "u-1"}, Unreserved: 3, Error: "it is a pipe",
			},
			{Kind: "host-local", Network: "pods", First: v6.IP, Last: v6.IP},
		},
		Away:      []cluster.Away{{Node: "n7/boot", From: ago(time.Hour), Until: ago(time.Minute)}},
		Status:    []byte(`{"node":"n1"}`),
		Unchecked: []string{"network cbr0: it is a pipe"}, Checked: []string{"pods", "other"},
	}
}

// Findings and books arrive as they were sent, with all their fields.
func TestFindings(t *testing.T) {
	want := sampleFindings()
	for f := range reflect.ValueOf(want.Findings[0]).Fields() { // none was forgotten here
		if reflect.ValueOf(want.Findings[0]).FieldByIndex(f.Index).IsZero() {
			t.Errorf("the sample has no %s", f.Name)
		}
	}
	for f := range reflect.ValueOf(want.Books[0]).Fields() {
		if reflect.ValueOf(want.Books[0]).FieldByIndex(f.Index).IsZero() {
			t.Errorf("the sample has no %s", f.Name)
		}
	}
	before := fmt.Sprintf("%+v", want)
	if diff := cmp.Diff(want, passed(t, want, 1<<20, noon), compare); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if after := fmt.Sprintf("%+v", want); after != before {
		t.Errorf("sending changed\n%s to\n%s", before, after)
	}
	later := noon.Add(1000 * time.Hour)
	got := passed(t, want, 1<<20, later)
	if since := got.Findings[0].Since.Sub(later).Round(time.Second); since != -time.Minute || !got.Findings[1].Since.IsZero() {
		t.Errorf("found %s ago by another clock; %v", since, got.Findings[1].Since)
	}
	want.Findings[0].Since = noon.Add(time.Hour)
	if since := passed(t, want, 1<<20, noon).Findings[0].Since; !since.Equal(noon) {
		t.Errorf("found in the future: %v", since)
	}
}

// Texts of a hostile node are harmless, and short.
func TestFindingsAreCleaned(t *testing.T) {
	const bad = "a\x1b[31m\u202e\nb"
	hostile := bad + strings.Repeat("x", 1000)
	f := cluster.Finding{IP: v4.IP, Given: 77}
	for _, v := range []reflect.Value{reflect.ValueOf(&f).Elem(), reflect.ValueOf(&f.Pod).Elem(), reflect.ValueOf(&f.ReservedPod).Elem()} {
		for _, field := range v.Fields() {
			if field.Kind() == reflect.String {
				field.SetString(hostile)
			}
		}
	}
	r := cluster.Book{Kind: hostile, Network: hostile, Sandbox: hostile, Error: hostile, First: v4.IP, Last: v4.IP}
	// Not by MarshalDocument, which cleans, too.
	b := Marshal(map[int]any{6: []cluster.Finding{f}, 7: []cluster.Book{r}, 8: []string{hostile}, 12: []string{hostile}})
	d, unknown, err := UnmarshalDocument(b, ourNode, noon)
	if err != nil || unknown || len(d.Findings) != 1 || len(d.Books) != 1 || d.Findings[0].Given != detector.GivenUnknown {
		t.Fatalf("%+v, %t, %v", d, unknown, err)
	}
	text := fmt.Sprintf("%+v %s %s", d, d.Findings[0].Pod.UID, d.Findings[0].ReservedPod.UID)
	if strings.ContainsAny(text, "\x1b\u202e\n") || strings.Count(text, "a?[31m??b") != 20 || strings.Contains(text, strings.Repeat("x", maxSentence)) {
		t.Errorf("%d texts: %.200q", strings.Count(text, "a?[31m??b"), text)
	}
}

// What has no address is left out and counted; fields of later versions do no harm.
func TestFindingsRefused(t *testing.T) {
	finding := func(ip netip.Addr) cluster.Finding {
		f := sampleFinding()
		f.IP = ip
		return f
	}
	between := func(first, last string) cluster.Book {
		r := cluster.Book{Kind: "host-local", Network: "pods"}
		if first != "" {
			r.First = netip.MustParseAddr(first)
		}
		if last != "" {
			r.Last = netip.MustParseAddr(last)
		}
		return r
	}
	for name, test := range map[string]struct {
		field         int
		value         any
		want, unknown bool
	}{
		"a finding":                    {6, sampleFinding(), true, false},
		"of a kind that is not known":  {6, cluster.Finding{Kind: "next", IP: v4.IP}, true, false},
		"of no address":                {6, finding(netip.Addr{}), false, false},
		"of 0.0.0.0":                   {6, finding(netip.IPv4Unspecified()), false, false},
		"of an address with a zone":    {6, finding(netip.MustParseAddr("fe80::1%$(reboot)")), false, false},
		"of IPv4 in IPv6":              {6, finding(netip.MustParseAddr("::ffff:10.0.0.1")), false, false},
		"a number":                     {6, 7, false, false},
		"with a field of the future":   {6, map[int]any{1: "unheld", 2: v4.IP, 99: "x"}, true, true},
		"a range":                      {7, between("10.1.2.1", "10.1.2.9"), true, false},
		"a range without a first":      {7, between("", "10.1.2.9"), false, false},
		"a range without a last":       {7, between("10.1.2.1", ""), false, false},
		"a range with a zone":          {7, between("fe80::1%x", "fe80::9"), false, false},
		"a range that ends in a zone":  {7, between("fe80::1", "fe80::9%x"), false, false},
		"a range that is a text":       {7, "10.1.2.0/24", false, false},
		"a range with a further field": {7, map[int]any{1: "host-local", 2: "pods", 3: v4.IP, 4: v4.IP, 99: 1}, true, true},
	} {
		d, unknown, err := UnmarshalDocument(Marshal(map[int]any{test.field: []any{test.value}}), ourNode, noon)
		if n := len(d.Findings) + len(d.Books); err != nil || unknown != test.unknown || (n == 1) != test.want || (d.Omitted == 0) != test.want {
			t.Errorf("%s: %+v, %t, %v", name, d, unknown, err)
		}
	}
	// The sender leaves them out, too.
	d := cluster.Document{Findings: []cluster.Finding{finding(netip.Addr{}), sampleFinding()}}
	if got := passed(t, d, 1<<20, noon); len(got.Findings) != 1 || got.Omitted != 1 {
		t.Errorf("%+v", got)
	}
}

// A limit leaves room for some of all, and the others are counted.
func TestFindingsOmitted(t *testing.T) {
	d := cluster.Document{Omitted: 3}
	for n := range 3000 {
		f := sampleFinding()
		f.IP = netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n) | 1})
		d.Findings = append(d.Findings, f)
		d.Books = append(d.Books, sampleFindings().Books...)
	}
	for _, limit := range []int{1 << 22, 1 << 18, 5000, 50} {
		got := passed(t, d, limit, noon)
		if sum := len(got.Findings) + len(got.Books) + got.Omitted; sum != 3*3000+3 {
			t.Errorf("%d bytes: %d findings, %d ranges, %d omitted", limit, len(got.Findings), len(got.Books), got.Omitted)
		}
		if full := len(got.Findings) == 3000; full != (limit == 1<<22) || limit >= 5000 && (len(got.Findings) == 0 || len(got.Books) == 0) {
			t.Errorf("%d bytes: %d findings, %d ranges", limit, len(got.Findings), len(got.Books))
		}
	}
	// There may be more than are accepted.
	many := cluster.Document{}
	for range maxElements + 5 {
		many.Findings = append(many.Findings, cluster.Finding{IP: v4.IP})
		many.Books = append(many.Books, cluster.Book{First: v4.IP, Last: v4.IP})
	}
	if got := passed(t, many, 1<<22, noon); len(got.Findings) != maxElements || len(got.Books) != maxElements || got.Omitted != 10 {
		t.Errorf("%d findings, %d ranges, %d omitted", len(got.Findings), len(got.Books), got.Omitted)
	}
}
