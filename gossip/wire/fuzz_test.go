package wire

import (
	"bytes"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// FuzzDecode: bytes are refused, or they are exactly those of the entries they give.
func FuzzDecode(f *testing.F) {
	for _, e := range samples() {
		b := Encode(us, e)
		f.Add(b)
		f.Add(e.Append(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := entries(t, b)
		if err != nil {
			return
		}
		p, _ := Decode(b)
		again := AppendHeader(nil, p.Header)
		for _, e := range list {
			again = e.Append(again)
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%+v is\n%x, decoded from\n%x", list, again, b)
		}
	})
}

// FuzzRoundTrip: any entry that makes sense comes out as it went in, however many share
// a packet.
func FuzzRoundTrip(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		batch := Batch{Sender: us}
		var want []Entry
		for range 1 + g.IntN(40) {
			e := g.entry()
			want = append(want, e)
			batch.Add(e)
		}
		var got []Entry
		for _, p := range batch.Take() {
			list, err := entries(t, p)
			if err != nil {
				t.Fatalf("%x: %v", p, err)
			}
			got = append(got, list...)
		}
		if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	})
}

// generator makes entries that make sense.
type generator struct{ *rand.Rand }

func (g generator) number(limit uint64) uint64 { return g.Uint64() >> g.IntN(64) % (limit + 1) }

func (g generator) id() uint64 { return g.number(math.MaxUint64-1) + 1 }

func (g generator) text(limit int) string {
	runes := []rune("abcxyz0189-._/ äß漢🙂")
	var b []byte
	for range g.IntN(limit + 1) {
		if r := string(runes[g.IntN(len(runes))]); len(b)+len(r) <= limit {
			b = append(b, r...)
		}
	}
	return string(b)
}

func (g generator) age() time.Duration {
	return time.Duration(g.number(uint64(maxAge/time.Millisecond))) * time.Millisecond
}

func (g generator) ip() netip.Addr {
	if g.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{10, byte(g.Uint32()), byte(g.Uint32()), byte(g.Uint32())})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 9: byte(g.Uint32()), 15: byte(g.Uint32())})
}

func (g generator) key() detector.Key {
	key := detector.Key{Network: "default", IP: g.ip()}
	if g.IntN(3) == 0 {
		key.Network = "n" + g.text(maxNetwork-1)
	}
	return key
}

func (g generator) holder(member MemberID) Holder {
	if g.IntN(3) == 0 {
		return Holder{Member: member, Ifindex: uint32(g.number(math.MaxUint32-1)) + 1, Generation: g.Uint32()}
	}
	return Holder{Member: member, Netns: g.id()}
}

func (g generator) claim(member MemberID, last bool) Claim {
	c := Claim{
		Holder: g.holder(member), Evidence: detector.Data + detector.Evidence(g.IntN(3)),
		FirstSeen: g.age(), Episodes: int(g.number(maxCount)),
	}
	if g.IntN(2) == 0 {
		c.MAC = detector.MAC{2, byte(g.Uint32())}
	}
	if last {
		c.LastSeen = g.age()
	}
	return c
}

func (g generator) claims(least int, member func() MemberID, last bool) (list []Claim) {
	for range least + g.IntN(maxClaims+1-least) {
		list = append(list, g.claim(member(), last))
	}
	return list
}

func (g generator) details() Details {
	return Details{
		Interface: g.text(maxInterface), Netns: g.text(maxNetns),
		Pod:     detector.Pod{Namespace: g.text(maxNamespace), Name: g.text(maxPodName), UID: g.text(maxUID)},
		Created: g.age(), Sandbox: detector.Sandbox{ID: g.text(maxSandbox), Stopped: g.IntN(2) == 0}, FoundAtStart: g.IntN(2) == 0,
	}
}

func (g generator) entry() Entry {
	switch Type(1 + g.IntN(int(TypePair))) {
	case TypeLease:
		if g.IntN(3) == 0 {
			return Lease{Seq: g.id(), Gone: true, Key: g.key(), Claim: Claim{Holder: g.holder(us)}}
		}
		return Lease{Seq: g.id(), Key: g.key(), Claim: g.claim(us, false)}
	case TypeAck:
		return Ack{Seq: g.id()}
	case TypeRival:
		member := func() MemberID { return MemberID(g.id()) }
		return Rival{Key: g.key(), Total: int(g.number(maxCount)), Claims: g.claims(1, member, true)}
	case TypeAsk:
		member := func() MemberID { return us }
		return Ask{ID: g.id(), Key: g.key(), Holder: g.holder(them), Claims: g.claims(0, member, false)}
	case TypeVerified:
		return g.verified()
	case TypeQuery:
		q := Query{ID: g.id(), Page: g.IntN(MaxPages), Kind: 1 + cluster.QueryKind(g.IntN(3)), All: g.IntN(2) == 0}
		if q.Kind == cluster.QueryStories || g.IntN(2) == 0 {
			q.IP = g.ip()
		}
		return q
	case TypeAnswer:
		a := Answer{ID: g.id(), Pages: 1 + g.IntN(MaxPages)}
		a.Page = g.IntN(a.Pages)
		for range g.IntN(maxPage + 1) {
			a.Entries = append(a.Entries, byte(g.Uint32()))
		}
		return a
	default:
		v := Pair{A: "a" + g.text(60) + "/b", B: "b" + g.text(60) + "/b", Origin: MemberID(g.id()), Seq: g.id(), Since: g.age()}
		v.A, v.B = cutSlashes(v.A), cutSlashes(v.B)
		for range g.IntN(maxExamples + 1) {
			v.Examples = append(v.Examples, g.key())
		}
		v.Addresses = len(v.Examples) + int(g.number(maxCount-maxExamples))
		return v
	}
}

// cutSlashes leaves the last one only.
func cutSlashes(id string) string {
	n := len(id) - len("/b")
	return string(bytes.ReplaceAll([]byte(id[:n]), []byte("/"), nil)) + id[n:]
}

func (g generator) verified() Verified {
	v := Verified{ID: g.id(), Key: g.key(), Outcome: cluster.Answered + cluster.Outcome(g.IntN(5)), Reason: g.text(maxReason)}
	if v.Outcome == cluster.Gone {
		v.Claim.Holder = g.holder(us)
		v.ID *= g.Uint64N(2)
		return v
	}
	v.Claim, v.Details = g.claim(us, true), g.details()
	switch v.Outcome {
	case cluster.Answered:
		v.Answer = g.age()
	case cluster.Forwards:
		v.Claim.Evidence = detector.Forwarded
	case cluster.Refused:
		v.Retry = g.age()
	}
	return v
}
