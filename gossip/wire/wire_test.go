package wire

import (
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/internal/bounds"
)

const (
	ourNode   = "n1/b1"
	otherNode = "n2/b2"
)

var (
	podMAC = detector.MAC{2, 0, 0, 0, 0, 7}
	v4     = detector.Key{Network: "default", IP: netip.MustParseAddr("10.0.0.7")}
	v6     = detector.Key{Network: "storage.100", IP: netip.MustParseAddr("fd00::7")}
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	compare = cmp.Options{cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateApproxTime(2 * time.Microsecond), cmpopts.EquateEmpty()}
)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// binding is a brief one, as in a lease.
func binding(node string) cluster.Binding {
	return cluster.Binding{
		Holder:   detector.Holder{ID: detector.HolderID{Node: node, Netns: 4242}, MAC: podMAC},
		Evidence: detector.Announced, FirstSeen: ago(90 * time.Second), Occurrences: 3,
	}
}

// seen is one as in a notice.
func seen(node string) cluster.Binding {
	b := binding(node)
	b.LastSeen = ago(1234 * time.Millisecond)
	return b
}

// complete is one as in a reply.
func complete(node string) cluster.Binding {
	b := seen(node)
	b.FoundAtStart = true
	b.Holder = detector.Holder{
		ID: b.Holder.ID, MAC: podMAC, Interface: detector.Interface{Ifindex: 17, Generation: 3}, InterfaceName: "veth17", NetnsName: "cni-17",
		Pod: detector.Pod{Namespace: "shop", Name: "cart-0", UID: "0-1-2"}, CreatedAt: ago(time.Hour), Sandbox: detector.Sandbox{ID: "0123456789abc", Stopped: true},
	}
	return b
}

// bridged is complete behind a bridge.
func bridged(node string) cluster.Binding {
	b := complete(node)
	b.Holder.Bridge = "br-shop"
	return b
}

// faceless is one whose netns is not seen.
func faceless(node string) cluster.Binding {
	return cluster.Binding{
		Holder: detector.Holder{ID: detector.HolderID{Node: node, Ifindex: 17, Generation: math.MaxUint32}}, Evidence: detector.Host,
	}
}

// golden are messages as the node n1/b1 sends them at noon, and their bytes. These do not change: agents of all versions
// understand each other. A field may be added.
var golden = []struct {
	message any
	hex     string
}{
	{Lease{Seq: 1, Key: v4, Binding: binding(ourNode)}, "a1019801a3010102a2016764656661756c7402440a00000703a401a201a1021910920446020000000007020303fbc0568000000000000603"},
	{Lease{Seq: 300, Key: v6, Binding: faceless(ourNode)}, "a1019801a30119012c02a2016b73746f726167652e3130300250fd00000000000000000000000000000703a201a101a20311041affffffff0204"},
	{Lease{Seq: 300, Key: v4, Gone: true, Binding: cluster.Binding{Holder: detector.Holder{ID: binding(ourNode).Holder.ID}}}, "a1019801a40119012c02a2016764656661756c7402440a00000703a101a101a10219109204f5"},
	{Ack{Seq: 300}, "a1029801a10119012c"},
	{Ack{Seq: 300, Others: []cluster.Binding{seen(otherNode)}, Total: 2}, "a1029801a30119012c0281a501a201a201656e322f6232021910920446020000000007020303fbc05680000000000005fbbff3be76c8b4395806030302"},
	{Notice{Seq: 7, Key: v4, Others: []cluster.Binding{seen(otherNode), faceless("n3/b3")}, Total: 70}, "a1039801a4010702a2016764656661756c7402440a0000070382a501a201a201656e322f6232021910920446020000000007020303fbc05680000000000005fbbff3be76c8b439580603a201a101a301656e332f62330311041affffffff0204041846"},
	{ProbeRequest{ID: 9, Key: v4, Holder: detector.HolderID{Node: otherNode, Netns: 77}, Others: []cluster.Binding{seen(ourNode), faceless(ourNode)}}, "a1049801a4010902a2016764656661756c7402440a00000703a201656e322f623202184d0482a501a201a1021910920446020000000007020303fbc05680000000000005fbbff3be76c8b439580603a201a101a20311041affffffff0204"},
	{ProbeReply{ID: 9, Key: v4, Outcome: detector.Answered, Binding: complete(ourNode), Answered: ago(20 * time.Millisecond)}, "a1059801a5010902a2016764656661756c7402440a000007030104a601a801a10219109202a201110203036676657468313704460200000000070566636e692d313706a3016473686f700266636172742d300365302d312d3207fbc0ac20000000000008a2016d3031323334353637383961626302f5020303fbc05680000000000004f505fbbff3be76c8b43958060305fbbf947ae147ae147b"},
	{ProbeReply{ID: 9, Key: v6, Outcome: detector.Refused, Binding: complete(ourNode), RetryAt: noon.Add(10 * time.Second), Reason: "probes are off"}, "a1059801a6010902a2016b73746f726167652e3130300250fd000000000000000000000000000007030504a601a801a10219109202a201110203036676657468313704460200000000070566636e692d313706a3016473686f700266636172742d300365302d312d3207fbc0ac20000000000008a2016d3031323334353637383961626302f5020303fbc05680000000000004f505fbbff3be76c8b43958060306fb4024000000000000076e70726f62657320617265206f6666"},
	{ProbeReply{ID: 9, Key: v4, Outcome: detector.Answered, Binding: bridged(ourNode)}, "a1059801a4010902a2016764656661756c7402440a000007030104a601a901a10219109202a201110203036676657468313704460200000000070566636e692d313706a3016473686f700266636172742d300365302d312d3207fbc0ac20000000000008a2016d3031323334353637383961626302f50a6762722d73686f70020303fbc05680000000000004f505fbbff3be76c8b439580603"},
	{ProbeReply{ID: 9, Key: v4, Outcome: detector.Gone, Binding: cluster.Binding{Holder: detector.Holder{ID: binding(ourNode).Holder.ID}}}, "a1059801a4010902a2016764656661756c7402440a000007030404a101a101a102191092"},
	{Report{Seq: 10, Conflict: []byte("\x1f\x8b\x00\xff")}, "a1069801a2010a02441f8b00ff"},
	{Report{Seq: 11, Summary: &cluster.Summary{Version: "2.0", Interfaces: map[string]int{"attached": 12, "failed": 1}, Findings: map[string]int{"namesake": 2}}}, "a1069801a2010b03a30163322e3002a2666661696c6564016861747461636865640c03a1686e616d6573616b6502"},
	{Resend{Seq: 12}, "a1079801a1010c"},
	{Query{Kind: cluster.QueryStories, IP: v6.IP, All: true}, "a301030250fd00000000000000000000000000000703f5"},
	{Query{Kind: cluster.QueryBindings}, "a10101"},
	{Query{Kind: cluster.QueryBindings, Only: cluster.Only{Prefix: netip.MustParsePrefix("10.0.0.0/24"), Pod: "web"}}, "a2010104a201450a000000180363776562"},
	{Query{Kind: cluster.QueryConflicts, All: true, Only: cluster.Only{Since: 12 * time.Hour}}, "a3010203f504a1051b0000274a48a78000"},
}

// packet encodes one message.
func packet(message any, now time.Time) []byte {
	var b Builder
	if !b.Add(Encode(message.(Message), now)) {
		panic("there is no room")
	}
	return b.Bytes()
}

// messages are those of a packet.
func messages(p Packet) (all []any) {
	v := reflect.ValueOf(p)
	for i := range v.NumField() {
		if list := v.Field(i); list.Kind() == reflect.Slice {
			for _, m := range list.Seq2() {
				all = append(all, m.Interface())
			}
		}
	}
	return all
}

func TestGolden(t *testing.T) {
	for _, g := range golden {
		var got string
		if q, ok := g.message.(Query); ok {
			got = hex.EncodeToString(Marshal(q))
		} else {
			got = hex.EncodeToString(packet(g.message, noon))
		}
		if got != g.hex {
			t.Errorf("%T %+v is\n%s, not\n%s", g.message, g.message, got, g.hex)
		}
	}
}

// What is received is what was sent, on the clock of the receiver.
func TestRoundTrip(t *testing.T) {
	kinds := make(map[Kind]bool)
	for _, g := range golden {
		b, err := hex.DecodeString(g.hex)
		if err != nil {
			t.Fatal(err)
		}
		if want, ok := g.message.(Query); ok {
			var got Query
			if _, err := Unmarshal(b, &got); err != nil || got != want {
				t.Errorf("%+v, %v, want %+v", got, err, want)
			}
			continue
		}
		kind, _ := Encode(g.message.(Message), noon)
		kinds[kind] = true
		p, invalid, unknown, err := Decode(b, ourNode, noon)
		if err != nil || invalid != 0 || unknown {
			t.Errorf("%T: %d invalid, unknown is %v, %v", g.message, invalid, unknown, err)
		}
		if diff := cmp.Diff([]any{g.message}, messages(p), compare); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		clear(b)
		if diff := cmp.Diff([]any{g.message}, messages(p), compare); diff != "" {
			t.Errorf("it changes with the buffer:\n%s", diff)
		}
	}
	for kind := KindLease; kind <= KindResend; kind++ {
		if !kinds[kind] {
			t.Errorf("there is no sample of a %s", kind)
		}
	}
}

func TestOtherClock(t *testing.T) {
	later := noon.Add(1000 * time.Hour)
	sent := ProbeReply{ID: 9, Key: v4, Outcome: detector.Refused, Binding: complete(ourNode), Answered: noon.Add(time.Hour), RetryAt: noon.Add(10 * time.Second)}
	p, _, _, err := Decode(packet(sent, noon), ourNode, later)
	if err != nil || len(p.Replies) != 1 {
		t.Fatal(p, err)
	}
	got := p.Replies[0]
	for what, times := range map[string][2]time.Time{
		"first seen": {got.Binding.FirstSeen, later.Add(-90 * time.Second)},
		"created":    {got.Binding.Holder.CreatedAt, later.Add(-time.Hour)},
		"retry":      {got.RetryAt, later.Add(10 * time.Second)},
		"answered":   {got.Answered, later}, // what is over is not in the future, whatever the sender says
	} {
		if d := times[0].Sub(times[1]).Abs(); d > 2*time.Microsecond {
			t.Errorf("%s: off by %v", what, d)
		}
	}
	unknown := sent
	unknown.RetryAt, unknown.Answered, unknown.Binding.Holder.CreatedAt = time.Time{}, time.Time{}, time.Time{}
	p, _, _, _ = Decode(packet(unknown, noon), ourNode, later)
	if got := p.Replies[0]; !got.RetryAt.IsZero() || !got.Answered.IsZero() || !got.Binding.Holder.CreatedAt.IsZero() {
		t.Error("a time that is not known became one")
	}
}

// A member says something of others in few words, and speaks for its own holders only.
func TestOnlyForItself(t *testing.T) {
	details := complete("n3/b3")
	brief := seen("n3/b3")
	own := complete("n3/b3") // the sender cannot say so
	var b Builder
	for _, m := range []any{
		Lease{Seq: 1, Key: v4, Binding: own},
		Ack{Seq: 2, Others: []cluster.Binding{details}},
		Notice{Seq: 3, Key: v4, Others: []cluster.Binding{details}},
		ProbeRequest{ID: 5, Key: v4, Holder: detector.HolderID{Node: ourNode, Netns: 7}, Others: []cluster.Binding{own}},
		ProbeReply{ID: 6, Key: v4, Outcome: detector.Answered, Binding: own},
	} {
		if k := kindOf(m); !b.Add(k, Marshal(m)) { // as a liar sends it
			t.Fatal("there is no room")
		}
	}
	p, invalid, _, err := Decode(b.Bytes(), otherNode, noon)
	if err != nil || invalid != 0 {
		t.Fatal(invalid, err)
	}
	plain := func(b cluster.Binding) cluster.Binding {
		b.FirstSeen, b.LastSeen = time.Time{}, time.Time{}
		return b
	}
	for what, got := range map[string]cluster.Binding{"acknowledgement": p.Acks[0].Others[0], "notice": p.Notices[0].Others[0]} {
		if diff := cmp.Diff(plain(brief), plain(got), compare); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
	}
	if diff := cmp.Diff(plain(binding(otherNode)), plain(p.Leases[0].Binding), compare); diff != "" {
		t.Errorf("lease (-want +got)\n%s", diff)
	}
	for what, got := range map[string]string{
		"request": p.Requests[0].Others[0].Holder.ID.Node, "reply": p.Replies[0].Binding.Holder.ID.Node,
	} {
		if got != otherNode {
			t.Errorf("%s of %s", what, got)
		}
	}
}

func kindOf(message any) Kind {
	k, _ := Encode(message.(Message), noon)
	return k
}

// With every text and list at its limit and beyond, a message fits a packet and says what matters.
func TestLargestFit(t *testing.T) {
	long := strings.Repeat("ä", 600)
	id := detector.HolderID{Node: strings.Repeat("n", 253) + "/" + strings.Repeat("b", 64), Netns: math.MaxUint64}
	key := detector.Key{Network: strings.Repeat("w", maxNetwork), IP: v6.IP}
	b := cluster.Binding{
		Holder: detector.Holder{
			ID: id, MAC: podMAC, Interface: detector.Interface{Ifindex: math.MaxUint32, Generation: math.MaxUint32}, InterfaceName: long, Bridge: long, NetnsName: long,
			Pod: detector.Pod{Namespace: long, Name: long, UID: long}, CreatedAt: ago(123456789 * time.Microsecond), Sandbox: detector.Sandbox{ID: long, Stopped: true},
		},
		Evidence: detector.Announced, FirstSeen: time.Unix(-1<<40, 7), LastSeen: ago(time.Microsecond), FoundAtStart: true, Occurrences: math.MaxInt,
	}
	bindings := slices.Repeat([]cluster.Binding{b}, 100)
	counts := make(map[string]int)
	for i := range 1000 {
		counts[fmt.Sprint(i, long)] = math.MaxInt
	}
	before := bounds.Counts()["message shortened to fit a packet"]
	defer func() {
		if bounds.Counts()["message shortened to fit a packet"] == before {
			t.Error("what is shortened is not counted")
		}
	}()
	for _, m := range []any{
		Lease{Seq: math.MaxUint64, Key: key, Binding: b},
		Ack{Seq: math.MaxUint64, Others: bindings, Total: math.MaxInt},
		Notice{Seq: math.MaxUint64, Key: key, Others: bindings, Total: math.MaxInt},
		ProbeRequest{ID: math.MaxUint64, Key: key, Holder: id, Others: bindings},
		ProbeReply{ID: math.MaxUint64, Key: key, Outcome: detector.Refused, Binding: b, Reason: long, Answered: b.LastSeen, RetryAt: noon.Add(math.MaxInt64)},
		Report{Seq: math.MaxUint64, Summary: &cluster.Summary{Version: long, Audit: long, Interfaces: counts, Findings: counts}},
		Resend{Seq: math.MaxUint64},
	} {
		encoded := packet(m, noon)
		p, invalid, unknown, err := Decode(encoded, ourNode, noon)
		if len(encoded) > MaxPacket || err != nil || invalid != 0 || unknown || len(messages(p)) != 1 {
			t.Errorf("%T of %d bytes: %d invalid, unknown is %v, %v", m, len(encoded), invalid, unknown, err)
			continue
		}
		t.Logf("%T has %d bytes", m, len(encoded))
		switch m := messages(p)[0].(type) {
		case Ack:
			if len(m.Others) < 2 || m.Others[0].Holder.ID != id {
				t.Errorf("%d others", len(m.Others))
			}
		case Notice:
			if len(m.Others) < 2 {
				t.Errorf("%d others", len(m.Others))
			}
		case ProbeRequest:
			if len(m.Others) < 4 || m.Holder != id {
				t.Errorf("%d others, holder %v", len(m.Others), m.Holder)
			}
		case ProbeReply:
			if len(m.Binding.Holder.Pod.Name) < minText || len(m.Reason) < minText {
				t.Errorf("%+v", m)
			}
		case Report:
			if len(m.Summary.Findings) < 4 {
				t.Errorf("%+v", m)
			}
		}
	}
}

// With names as they are, nothing is left out and nothing is cut.
func TestUsualFit(t *testing.T) {
	boot := "/01234567-89ab-cdef-0123-456789abcdef"
	name := func(i int) string { return fmt.Sprintf("ip-10-0-0-%d.internal", i) + boot }
	var others []cluster.Binding
	for i := range maxOthers {
		b := complete(name(i))
		b.Holder.Pod = detector.Pod{Namespace: "shop", Name: "cart-6d4cf56db6-x8h7v", UID: boot[1:]}
		others = append(others, b)
	}
	for _, m := range []any{Ack{Seq: 1 << 20, Others: others, Total: 8}, Notice{Seq: 1 << 20, Key: v4, Others: others, Total: 8}} {
		p, _, _, err := Decode(packet(m, noon), ourNode, noon)
		if err != nil || len(p.Acks)+len(p.Notices) != 1 || len(p.Acks) > 0 && len(p.Acks[0].Others) != maxOthers || len(p.Notices) > 0 && len(p.Notices[0].Others) != maxOthers {
			t.Errorf("%+v, %v", p, err)
		}
	}
	reply := ProbeReply{ID: 1, Key: v4, Outcome: detector.Answered, Binding: others[0], Answered: noon}
	p, _, _, err := Decode(packet(reply, noon), name(0), noon)
	if diff := cmp.Diff([]ProbeReply{reply}, p.Replies, compare); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// Packets are filled, none is too large, and nothing gets lost.
func TestBuilder(t *testing.T) {
	var packets [][]byte
	var b Builder
	want, size := make(map[Kind]int), 0
	for i := range 2000 {
		var m any = Lease{Seq: uint64(i), Key: v6, Binding: binding(ourNode)}
		if i%3 != 0 {
			m = Ack{Seq: uint64(i)}
		}
		if i > 1000 {
			m = Resend{Seq: 1} // more than 255 fit by their size
		}
		k, encoded := Encode(m.(Message), noon)
		want[k]++
		size += len(encoded)
		if !b.Add(k, encoded) {
			packets = append(packets, b.Bytes())
			b = Builder{}
			b.Add(k, encoded)
		}
	}
	packets = append(packets, b.Bytes())
	got := make(map[Kind]int)
	for _, b := range packets {
		p, invalid, _, err := Decode(b, ourNode, noon)
		if err != nil || invalid != 0 || len(b) > MaxPacket {
			t.Fatalf("%d bytes, %d invalid, %v", len(b), invalid, err)
		}
		got[KindLease] += len(p.Leases)
		got[KindAck] += len(p.Acks)
		got[KindResend] += len(p.Resends)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if most := size/MaxPacket + 6; len(packets) > most {
		t.Errorf("%d packets for %d bytes, want %d", len(packets), size, most)
	}
}

func TestKinds(t *testing.T) {
	seen := make(map[string]bool)
	for k := KindLease; k < Kinds; k++ {
		if k.String() == "" || seen[k.String()] {
			t.Errorf("kind %d is %q", k, k)
		}
		seen[k.String()] = true
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
