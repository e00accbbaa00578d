package wire

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	us    = MemberID(0x1122334455667788)
	them  = MemberID(0x99aabbccddeeff00)
	third = MemberID(3)
)

var (
	podMAC = detector.MAC{2, 0, 0, 0, 0, 7}
	v4     = detector.Key{Network: "default", IP: netip.MustParseAddr("10.0.0.7")}
	v6     = detector.Key{Network: "storage.100", IP: netip.MustParseAddr("fd00::7")}

	compareAddrs = cmpopts.EquateComparable(netip.Addr{})
)

// claim is a claim as in a Rival; others have no member of their own or no LastSeen.
func claim(member MemberID) Claim {
	return Claim{
		Holder: Holder{Member: member, Netns: 4242}, MAC: podMAC, Evidence: detector.Announced,
		FirstSeen: 90 * time.Second, LastSeen: 1234 * time.Millisecond, Episodes: 3,
	}
}

func fresh(c Claim) Claim {
	c.LastSeen = 0
	return c
}

// samples are entries as the member us sends them to them.
func samples() map[string]Entry {
	faceless := Claim{Holder: Holder{Member: us, Ifindex: 17, Generation: math.MaxUint32}, Evidence: detector.Host}
	details := Details{
		Interface: "veth0123456789a", Netns: "cni-5", Pod: detector.Pod{Namespace: "shop", Name: "cart-0", UID: "0-1-2"},
		Created: 90500 * time.Millisecond, Sandbox: detector.Sandbox{ID: "0123456789abc", Stopped: true}, FoundAtStart: true,
	}
	return map[string]Entry{
		"lease":           Lease{Seq: 1, Key: v4, Claim: fresh(claim(us))},
		"lease v6":        Lease{Seq: math.MaxUint64, Key: v6, Claim: faceless},
		"lease gone":      Lease{Seq: 300, Gone: true, Key: v4, Claim: Claim{Holder: Holder{Member: us, Netns: math.MaxUint64}}},
		"lease gone v6":   Lease{Seq: 300, Gone: true, Key: v6, Claim: Claim{Holder: faceless.Holder}},
		"ack":             Ack{Seq: 300},
		"rival":           Rival{Key: v4, Total: 2, Claims: []Claim{claim(third)}},
		"rivals":          Rival{Key: v6, Total: 5000, Claims: []Claim{claim(third), claim(us), faceless}},
		"ask":             Ask{ID: 5, Key: v4, Holder: Holder{Member: them, Netns: 77}, Claims: []Claim{fresh(claim(us)), faceless}},
		"ask for nothing": Ask{ID: 5, Key: v6, Holder: Holder{Member: them, Ifindex: 3}},
		"answered": Verified{
			ID: 5, Key: v4, Outcome: cluster.Answered, Answer: 20 * time.Millisecond, Claim: claim(us), Details: details,
		},
		"unanswered": Verified{ID: 5, Key: v6, Outcome: cluster.Unanswered, Claim: faceless, Details: details, Reason: "no answer"},
		"forwards":   Verified{ID: 5, Key: v4, Outcome: cluster.Forwards, Claim: Claim{Holder: faceless.Holder, Evidence: detector.Forwarded}},
		"gone":       Verified{ID: math.MaxUint64, Key: v4, Outcome: cluster.Gone, Claim: Claim{Holder: faceless.Holder}, Reason: "netns cni-5 is gone"},
		"news":       Verified{Key: v6, Outcome: cluster.Gone, Claim: Claim{Holder: Holder{Member: us, Netns: 9}}},
		"refused":    Verified{ID: 1, Key: v4, Outcome: cluster.Refused, Claim: claim(us), Reason: "solicit: off", Retry: 10 * time.Second},
		"query":      Query{ID: 1, Kind: cluster.QueryBindings},
		"query all":  Query{ID: 1, Page: MaxPages - 1, Kind: cluster.QueryConflicts, IP: v4.IP, All: true},
		"query v6":   Query{ID: 1, Kind: cluster.QueryStories, IP: v6.IP},
		"answer":     Answer{ID: 1, Page: MaxPages - 1, Pages: MaxPages, Entries: bytes.Repeat([]byte{7}, maxPage)},
		"no answer":  Answer{ID: 1, Pages: 1},
		"pair": Pair{
			A: "n1/b1", B: "n2/b2", Origin: third, Seq: 9, Addresses: 250, Examples: []detector.Key{v4, v6, v4}, Since: time.Hour,
		},
		"pair ends": Pair{A: "n1/b1", B: "n1/b2", Origin: us, Seq: 10},
	}
}

// entries takes all entries out of a packet, as the member them.
func entries(t testing.TB, b []byte) ([]Entry, error) {
	t.Helper()
	p, err := Decode(b)
	if err != nil {
		return nil, err
	}
	switch p.Type {
	case TypeLease:
		return listed(p.Leases())
	case TypeAck:
		return listed(p.Acks())
	case TypeRival:
		return listed(p.Rivals())
	case TypeAsk:
		return listed(p.Asks(them))
	case TypeVerified:
		return listed(p.Verifieds())
	case TypeQuery:
		return listed(p.Queries())
	case TypeAnswer:
		return listed(p.Answers())
	case TypePair:
		return listed(p.Pairs())
	}
	t.Fatalf("type %s", p.Type)
	return nil, nil
}

func listed[E Entry](list []E, err error) ([]Entry, error) {
	var all []Entry
	for _, e := range list {
		all = append(all, e)
	}
	return all, err
}

func TestRoundTrip(t *testing.T) {
	seen := make(map[Type]bool)
	for name, e := range samples() {
		seen[e.Type()] = true
		b := Encode(us, e)
		p, err := Decode(b)
		if err != nil || p.Header != (Header{Type: e.Type(), Sender: us}) {
			t.Errorf("%s: header %+v, %v", name, p.Header, err)
		}
		got, err := entries(t, b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff([]Entry{e}, got, compareAddrs); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		clear(b)
		if diff := cmp.Diff([]Entry{e}, got, compareAddrs); diff != "" {
			t.Errorf("%s changes with the buffer\n%s", name, diff)
		}
	}
	for kind := TypeLease; kind <= TypePair; kind++ {
		if !seen[kind] {
			t.Errorf("no sample of type %s", kind)
		}
	}
}

// TestSizes keeps the common packets small: a boot storm is made of them.
func TestSizes(t *testing.T) {
	plain := Lease{Seq: 1000, Key: v4, Claim: Claim{
		Holder: Holder{Netns: 100_000}, MAC: podMAC, Evidence: detector.Data, FirstSeen: time.Hour,
	}}
	six, gone := plain, plain
	six.Key.IP = v6.IP
	gone.Gone = true
	for _, test := range []struct {
		name string
		e    Entry
		want int
	}{
		{"lease", plain, 21},
		{"lease v6", six, 33},
		{"lease gone", gone, 10},
		{"ack", Ack{1000}, 2},
		{"rival", Rival{Key: v4, Total: 2, Claims: []Claim{claim(us)}}, 30},
		{"ask", Ask{ID: 7, Key: v4, Holder: Holder{Netns: 100_000}, Claims: []Claim{claim(us)}}, 23},
	} {
		if got := len(test.e.Append(nil)); got != test.want {
			t.Errorf("%s has %d bytes, want %d", test.name, got, test.want)
		}
	}
}

// TestLargestFit: with every text and number at its limit and beyond, an entry fits a packet.
func TestLargestFit(t *testing.T) {
	long := strings.Repeat("ä", 600)
	key := detector.Key{Network: long, IP: v6.IP}
	c := Claim{
		Holder: Holder{Member: us, Netns: math.MaxUint64}, MAC: podMAC, Evidence: detector.Announced,
		FirstSeen: math.MaxInt64, LastSeen: math.MaxInt64, Episodes: math.MaxInt,
	}
	claims := []Claim{c, c, c, c, c, c, c, c, c, c}
	for _, e := range []Entry{
		Lease{Seq: math.MaxUint64, Key: key, Claim: c},
		Rival{Key: key, Total: math.MaxInt, Claims: claims},
		Ask{ID: math.MaxUint64, Key: key, Holder: c.Holder, Claims: claims},
		Verified{
			ID: math.MaxUint64, Key: key, Outcome: cluster.Refused, Claim: c, Reason: long, Retry: math.MaxInt64,
			Details: Details{
				Interface: long, Netns: long, Pod: detector.Pod{Namespace: long, Name: long, UID: long}, Created: math.MaxInt64,
				Sandbox: detector.Sandbox{ID: long, Stopped: true}, FoundAtStart: true,
			},
		},
		Answer{ID: math.MaxUint64, Page: MaxPages - 1, Pages: MaxPages, Entries: make([]byte, maxPage)},
		Pair{A: "a/" + long, B: "b/" + long, Origin: us, Seq: math.MaxUint64, Addresses: math.MaxInt, Examples: []detector.Key{key, key, key, key}, Since: math.MaxInt64},
	} {
		b := Encode(us, e)
		t.Logf("%s: %d bytes", e.Type(), len(b))
		if got, err := entries(t, b); err != nil || len(got) != 1 {
			t.Errorf("%s of %d bytes: %d entries, %v", e.Type(), len(b), len(got), err)
		}
	}
}

func TestBatch(t *testing.T) {
	b := Batch{Sender: us}
	if got := b.Take(); got != nil {
		t.Errorf("an empty batch has %d packets", len(got))
	}
	var want []Entry
	for i := range 200 {
		e := Lease{Seq: uint64(i), Key: v6, Claim: fresh(claim(us))}
		want = append(want, e)
		b.Add(e)
	}
	want = append(want, Ack{1}, Ack{2})
	b.Add(Ack{1})
	b.Add(Ack{2})
	packets := b.Take()
	var got []Entry
	size := 0
	for _, p := range packets {
		list, err := entries(t, p)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, list...)
		size += len(p)
	}
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if fewest := size/MaxPacket + 2; len(packets) > fewest {
		t.Errorf("%d packets for %d bytes, want %d", len(packets), size, fewest)
	}
	if again := b.Take(); again != nil {
		t.Errorf("%d packets are taken twice", len(again))
	}
}

func TestMemberIDOf(t *testing.T) {
	// Agents of other versions compute the same.
	if got, want := MemberIDOf("n1", "b1", 1), MemberID(0xbd24660cb0e97cdc); got != want {
		t.Errorf("got %#x, want %#x", got, want)
	}
	seen := make(map[MemberID]string)
	for _, m := range []struct {
		name, boot string
		epoch      int64
	}{{"n1", "b1", 1}, {"n1", "b1", 2}, {"n1", "b2", 1}, {"n2", "b1", 1}, {"n1b", "1", 1}, {"n", "1b1", 1}, {"", "n1b1", 1}, {"n1", "b1", -1}} {
		id, text := MemberIDOf(m.name, m.boot, m.epoch), fmt.Sprint(m)
		if other, found := seen[id]; found {
			t.Errorf("%s and %s are both %x", other, text, id)
		}
		seen[id] = text
	}
}
