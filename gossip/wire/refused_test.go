package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// A later version sends more fields and more kinds of messages. This one skips and counts them.
func TestLaterVersion(t *testing.T) {
	type holder struct {
		detector.Holder
		Rack string `cbor:"99,keyasint"`
	}
	type bind struct {
		Holder   holder `cbor:"1,keyasint"`
		Evidence uint8  `cbor:"2,keyasint"`
		New      []int  `cbor:"77,keyasint"`
	}
	type lease struct {
		Seq     uint64            `cbor:"1,keyasint"`
		Key     detector.Key      `cbor:"2,keyasint"`
		Binding bind              `cbor:"3,keyasint"`
		New     map[string]string `cbor:"-5,keyasint"`
	}
	type packet struct {
		Leases  []any          `cbor:"1,keyasint"`
		Acks    []Ack          `cbor:"2,keyasint"`
		Another []map[int]int  `cbor:"40,keyasint"`
		Named   map[string]any `cbor:"text"`
	}
	strange := lease{Seq: 3, Key: v4, Binding: bind{holder{binding("").Holder, "r1"}, 9, nil}}
	b := Marshal(packet{
		Leases: []any{
			Lease{Seq: 1, Key: v4, Binding: binding("")},
			lease{Seq: 2, Key: v4, Binding: bind{holder{binding("").Holder, "r1"}, 3, []int{1, 2}}, New: map[string]string{"x": "y"}},
			strange, // with evidence that this version does not know
		},
		Acks: []Ack{{Seq: 7}}, Another: []map[int]int{{1: 2}}, Named: map[string]any{"a": []string{"b"}},
	})
	p, invalid, unknown, err := Decode(b, ourNode, noon)
	if err != nil || invalid != 1 || !unknown || len(p.Leases) != 2 || len(p.Acks) != 1 {
		t.Fatalf("%+v, %d invalid, unknown is %v, %v", p, invalid, unknown, err)
	}
	if got := p.Leases[1]; got.Seq != 2 || got.Binding.Holder.ID.Netns != 4242 || got.Binding.Holder.MAC != podMAC || got.Binding.Evidence != detector.Announced {
		t.Errorf("%+v", got)
	}
	var q Query
	if unknown, err := Unmarshal(Marshal(map[int]any{1: 2, 9: "new"}), &q); err != nil || !unknown || q.Kind != cluster.QueryConflicts {
		t.Errorf("%+v, %v", q, err)
	}
}

// What no version sends is refused as a whole.
func TestRefused(t *testing.T) {
	valid := packet(Lease{Seq: 1, Key: v4, Binding: binding(ourNode)}, noon)
	for name, text := range map[string]string{
		"nothing":                          "",
		"a number":                         "01",
		"a list":                           "80",
		"a text":                           "6161",
		"breaks off":                       hex.EncodeToString(valid[:len(valid)-1]),
		"goes on":                          hex.EncodeToString(valid) + "00",
		"a kind twice":                     "a202 81a10101 02 81a10102",
		"a field twice":                    "a102 81a2 0101 0102",
		"an unknown field twice":           "a102 81a3 0101 1863 01 1863 02",
		"an unknown kind twice":            "a3 02 81a10101 1828 01 1828 01",
		"a list without end":               "a102 9f a10101 ff",
		"a map without end":                "bf02 81a10101 ff",
		"a text without end":               "a101 81a3 0101 02a2 01 7f6161ff 02440a000007 03a0",
		"a tag":                            "a102 81c1a10101",
		"a text that is no UTF-8":          "a101 81a3 0101 02a2 0161ff 02440a000007 03a0",
		"a list of 2^32 elements":          "a102 9a ffffffff",
		"a list of 2^63 elements":          "a102 9b 7fffffffffffffff",
		"a map of 2^31 fields":             "ba 7fffffff",
		"a text of 2^63 bytes":             "a101 81a3 0101 02a1 01 7b7fffffffffffffff",
		"a list of too many elements":      "a102 9a00008001" + strings.Repeat("a0", 0x8001),
		"too deep":                         "a11828" + strings.Repeat("81", 20) + "00",
		"a negative number":                "a102 81a10120",
		"a number of more than 64 bits":    "a102 81a101 c249010000000000000000",
		"evidence of more than eight bits": "a101 81a3 0101 02a2 0161 61 02440a000007 03a1 021903e8",
		"an address of three bytes":        "a101 81a2 0101 02a2 016161 02430a0000",
		"a lease that is a number":         "a101 8101",
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			t.Fatal(name, err)
		}
		if p, _, _, err := Decode(b, ourNode, noon); !errors.Is(err, ErrMalformed) || len(messages(p)) != 0 {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	for name, b := range map[string][]byte{"an empty packet": {0xa0}, "the valid one": valid} {
		if p, _, _, err := Decode(b, ourNode, noon); err != nil {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	for n := range valid {
		if p, _, _, err := Decode(valid[:n:n], ourNode, noon); err == nil {
			t.Errorf("%d of %d bytes are %+v", n, len(valid), p)
		}
	}
}

// An invalid message is left out and counted, and those beside it are there.
func TestInvalid(t *testing.T) {
	lease := Lease{Seq: 1, Key: v4, Binding: binding("")}
	notice := Notice{Seq: 1, Key: v4, Others: []cluster.Binding{seen(otherNode)}}
	end := Lease{Seq: 1, Key: v4, Binding: binding(""), Gone: true}
	request := ProbeRequest{ID: 1, Key: v4, Holder: detector.HolderID{Node: ourNode, Netns: 7}}
	reply := ProbeReply{ID: 1, Key: v4, Outcome: detector.Answered, Binding: complete("")}
	keys := map[string]detector.Key{
		"no network": {IP: v4.IP}, "a long network": {Network: strings.Repeat("n", maxNetwork+1), IP: v4.IP}, "a network with a new line": {Network: "a\nb", IP: v4.IP},
		"right to left": {Network: "a\u202eb", IP: v4.IP}, "no address": {Network: "default"}, "0.0.0.0": {Network: "default", IP: netip.IPv4Unspecified()},
		"::": {Network: "default", IP: netip.IPv6Unspecified()}, "4in6": {Network: "default", IP: netip.MustParseAddr("::ffff:10.0.0.1")},
		"a zone": {Network: "default", IP: netip.MustParseAddr("fe80::1%eth0")},
	}
	holders := map[string]detector.HolderID{"no holder": {}, "two holders": {Netns: 1, Ifindex: 1}, "a generation only": {Generation: 4}}
	invalid := make(map[string]any)
	for name, key := range keys {
		l, n, q, r, e := lease, notice, request, reply, end
		l.Key, n.Key, q.Key, r.Key, e.Key = key, key, key, key, key
		for i, m := range []any{l, n, q, r, e} {
			invalid[fmt.Sprint(name, i)] = m
		}
	}
	for name, id := range holders {
		l, q, r, e := lease, request, reply, end
		l.Binding.Holder.ID, q.Holder, r.Binding.Holder.ID, e.Binding.Holder.ID = id, id, id, id
		for i, m := range []any{l, q, r, e} {
			invalid[fmt.Sprint(name, i)] = m
		}
	}
	for _, evidence := range []detector.Evidence{0, detector.Forwarded, detector.Host + 1} {
		l := lease
		l.Binding.Evidence = evidence
		invalid[fmt.Sprint("lease with evidence ", uint8(evidence))] = l
	}
	for _, outcome := range []detector.Outcome{0, detector.Unreachable, 99} {
		r := reply
		r.Outcome = outcome
		invalid[fmt.Sprint("outcome ", outcome)] = r
	}
	invalid["request 0"] = ProbeRequest{Key: v4, Holder: request.Holder}
	invalid["no report"] = Report{Seq: 1}
	for name, m := range invalid {
		var b Builder
		b.Add(KindAck, Marshal(Ack{Seq: 1}))
		b.Add(kindOf(m), Marshal(m)) // as a liar sends it
		b.Add(KindLease, Marshal(lease))
		p, n, _, err := Decode(b.Bytes(), ourNode, noon)
		if err != nil || n != 1 || len(messages(p)) != 2 {
			t.Errorf("%s: %d invalid, %d messages, %v", name, n, len(messages(p)), err)
		}
	}
	for _, m := range []any{lease, notice, request, reply, end, Report{Seq: 1, Conflict: []byte{0}}} {
		if _, n, _, err := Decode(packet(m, noon), ourNode, noon); err != nil || n != 0 {
			t.Errorf("%T: %d invalid, %v", m, n, err)
		}
	}
	// A lease that has ended needs no evidence, and others that are invalid are left out.
	gone := Lease{Seq: 1, Key: v4, Gone: true, Binding: cluster.Binding{Holder: detector.Holder{ID: lease.Binding.Holder.ID}}}
	notice.Others = []cluster.Binding{{}, seen(otherNode), {Holder: detector.Holder{ID: detector.HolderID{Node: otherNode, Netns: 1}}, Evidence: detector.Forwarded}}
	var b Builder
	b.Add(KindLease, Marshal(gone))
	b.Add(KindNotice, Marshal(notice))
	p, n, _, err := Decode(b.Bytes(), ourNode, noon)
	if err != nil || n != 0 || len(p.Leases) != 1 || len(p.Notices) != 1 || len(p.Notices[0].Others) != 1 {
		t.Errorf("%+v, %d invalid, %v", p, n, err)
	}
}

// What one member can make another keep is short, and fit for a terminal.
func TestTexts(t *testing.T) {
	nasty := "a\x1b[31m\n\u202e\u2066\xff b" + strings.Repeat("ä", 600)
	b := complete("")
	b.Holder.InterfaceName, b.Holder.Bridge, b.Holder.NetnsName, b.Holder.Sandbox.ID = nasty, nasty, nasty, nasty
	b.Holder.Pod = detector.Pod{Namespace: nasty, Name: nasty, UID: nasty}
	reply := ProbeReply{ID: 1, Key: v4, Outcome: detector.Refused, Binding: b, Reason: nasty}
	other := seen(nasty)
	counts := map[string]int{nasty: 1}
	encoded := packet(reply, noon)
	if p, _, _, err := Decode(encoded, ourNode, noon); err != nil || len(p.Replies) != 1 {
		t.Fatalf("what was cleaned is refused: %v", err)
	}
	for _, m := range []any{reply, Notice{Seq: 1, Key: v4, Others: []cluster.Binding{other}}, Report{Summary: &cluster.Summary{Version: nasty, Audit: nasty, Interfaces: counts, Findings: counts}}} {
		raw := Marshal(m) // as a liar sends it
		raw = bytes.ReplaceAll(raw, []byte("\xff b"), []byte("xxx"))
		raw = append([]byte{0xa1, byte(kindOf(m)), 0x81}, raw...)
		p, invalid, _, err := Decode(raw, ourNode, noon)
		if err != nil || invalid != 0 || len(messages(p)) != 1 {
			t.Fatalf("%T: %d invalid, %v", m, invalid, err)
		}
		var list []string
		switch m := messages(p)[0].(type) {
		case ProbeReply:
			h := m.Binding.Holder
			list = []string{h.InterfaceName, h.Bridge, h.NetnsName, h.Pod.Namespace, h.Pod.Name, h.Pod.UID, h.Sandbox.ID, m.Reason}
		case Notice:
			list = []string{m.Others[0].Holder.ID.Node}
		case Report:
			list = slices.Concat([]string{m.Summary.Version, m.Summary.Audit}, slices.Collect(maps.Keys(m.Summary.Interfaces)), slices.Collect(maps.Keys(m.Summary.Findings)))
		}
		for _, s := range list {
			if !strings.HasPrefix(s, "a?[31m???") || len(s) > maxSentence || detector.Printable(s) != s || len(s) < maxText-1 {
				t.Errorf("%T has %q", m, s)
			}
		}
		if len(list) == 0 {
			t.Errorf("%T has no texts", m)
		}
	}
}

func TestClean(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"cart-0", 10, "cart-0"},
		{"", 10, ""},
		{"abcdef", 3, "abc"},
		{"aäb", 2, "a"},
		{"ä", 1, ""},
		{"a\x00b\x7fc", 10, "a?b?c"},
		{"\xff\xfe", 10, "??"},
		{"a\u200db", 10, "a?b"},
		{"漢字", 4, "漢"},
		{"\ufffd", 10, "?"},
	} {
		if got := Clean(test.text, test.limit); got != test.want {
			t.Errorf("%q is %q, want %q", test.text, got, test.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, g := range golden {
		b, _ := hex.DecodeString(g.hex)
		f.Add(b)
	}
	f.Add(pack(bytes.Repeat([]byte{0xa0}, 500)))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, _, _, err := Decode(b, otherNode, noon)
		if err != nil {
			return
		}
		for _, m := range messages(p) {
			if r, ok := m.(Report); ok && len(r.Conflict) > MaxReport {
				continue // nobody sends it
			}
			encoded := packet(m, noon)
			again, invalid, unknown, err := Decode(encoded, otherNode, noon)
			if len(encoded) > MaxPacket || invalid != 0 || unknown || err != nil {
				t.Fatalf("%+v has %d bytes, %d invalid, %v", m, len(encoded), invalid, err)
			}
			if full := Marshal(m); len(full) < MaxPacket/2 { // nothing was cut
				if diff := cmp.Diff([]any{m}, messages(again), compare); diff != "" {
					t.Fatalf("(-first +again)\n%s", diff)
				}
			}
		}
	})
}
