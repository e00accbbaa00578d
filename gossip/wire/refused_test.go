package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestBroken: no packet that breaks off or goes on is taken, in part or as a whole.
func TestBroken(t *testing.T) {
	for name, e := range samples() {
		b := Encode(us, e)
		for n := range len(b) {
			if got, err := entries(t, b[:n:n]); err == nil {
				t.Errorf("%s: %d of %d bytes are %+v", name, n, len(b), got)
			}
		}
		if got, err := entries(t, append(b, 0x80)); err == nil {
			t.Errorf("%s and garbage are %+v", name, got)
		}
	}
}

func TestRefused(t *testing.T) {
	valid := Encode(us, Ack{1})
	changed := func(i int, v byte) []byte {
		b := bytes.Clone(valid)
		b[i] = v
		return b
	}
	with := func(kind Type, s string) []byte {
		var b []byte
		if _, err := fmt.Sscanf(strings.ReplaceAll(s, " ", ""), "%x", &b); err != nil {
			t.Fatal(err)
		}
		return append(AppendHeader(nil, Header{Type: kind, Sender: us}), b...)
	}
	const mac = " 020000000007 "
	for _, test := range []struct {
		name string
		b    []byte
		want error
	}{
		// What the others are made of.
		{"ack", valid, nil},
		{"lease", with(TypeLease, "24 01 0a000007 05"+mac+"00 00"), nil},
		{"lease of an interface", with(TypeLease, "2c 01 0a000007 05 01"+mac+"00 00"), nil},
		{"lease, named network", with(TypeLease, "26 01 0a000007 02 6163 05"+mac+"00 00"), nil},
		{"lease, largest age and count", with(TypeLease, "24 01 0a000007 05"+mac+"80808080808001 ffffffff07"), nil},
		{"lease gone", with(TypeLease, "80 01 0a000007 05"), nil},
		{"rival", with(TypeRival, "00 0a000007 02 01 24 0000000000000003 05"+mac+"00 00 00"), nil},
		{"rivals", with(TypeRival, "00 0a000007 09 08"+strings.Repeat("20 0000000000000003 05 00 00 00", 8)), nil},
		{"ask", with(TypeAsk, "00 01 0a000007 05 00"), nil},
		{"verified", with(TypeVerified, "20 02 01 0a000007 05 00 00 00 00 00 00 00 00 00 00 00 00 00"), nil},
		{"verified gone", with(TypeVerified, "00 04 01 0a000007 05 01 20"), nil},
		{"query", with(TypeQuery, "10 01 00"), nil},
		{"answer", with(TypeAnswer, "01 00 01 00"), nil},
		{"pair", with(TypePair, "03 612f61 03 622f62 0000000000000003 01 03 00 03"+strings.Repeat("00 0a000007", 3)), nil},

		{"nothing", nil, ErrMagic},
		{"one byte", valid[:1], ErrMagic},
		{"another program's", changed(0, 'x'), ErrMagic},
		{"version 0", changed(2, 0), ErrVersion},
		{"version 1", changed(2, 1), ErrVersion},
		{"version 3", changed(2, 3), ErrVersion},
		{"type 0", changed(3, 0), ErrType},
		{"type 9", changed(3, 9), ErrType},
		{"no sender", with(TypeAck, "01")[:headerSize-8], ErrMalformed},
		{"sender 0", Encode(0, Ack{1}), ErrMalformed},
		{"no entry", valid[:headerSize], ErrMalformed},
		{"too long", append(bytes.Clone(valid), make([]byte, MaxPacket)...), ErrOversize},

		{"number not in its shortest form", with(TypeAck, "8100"), ErrMalformed},
		{"number of more than 64 bits", with(TypeAck, "ffffffffffffffffffff01"), ErrMalformed},
		{"lease without evidence", with(TypeLease, "04 01 0a000007 05"+mac+"00 00"), ErrMalformed},
		{"lease, forwarded", with(TypeLease, "14 01 0a000007 05"+mac+"00 00"), ErrMalformed},
		{"lease, evidence 5", with(TypeLease, "54 01 0a000007 05"+mac+"00 00"), ErrMalformed},
		{"lease of 0.0.0.0", with(TypeLease, "24 01 00000000 05"+mac+"00 00"), ErrMalformed},
		{"lease of ::", with(TypeLease, "25 01 00000000000000000000000000000000 05"+mac+"00 00"), ErrMalformed},
		{"lease of 4in6", with(TypeLease, "25 01 00000000000000000000ffff0a000007 05"+mac+"00 00"), ErrMalformed},
		{"lease of netns 0", with(TypeLease, "24 01 0a000007 00"+mac+"00 00"), ErrMalformed},
		{"lease of interface 0", with(TypeLease, "2c 01 0a000007 00 01"+mac+"00 00"), ErrMalformed},
		{"lease of interface 2^32", with(TypeLease, "2c 01 0a000007 8080808010 01"+mac+"00 00"), ErrMalformed},
		{"lease, MAC zero", with(TypeLease, "24 01 0a000007 05 000000000000 00 00"), ErrMalformed},
		{"lease, age of 2^42 ms and one", with(TypeLease, "24 01 0a000007 05"+mac+"81808080808001 00"), ErrMalformed},
		{"lease, 2^31 episodes", with(TypeLease, "24 01 0a000007 05"+mac+"00 8080808008"), ErrMalformed},
		{"lease, network named default", with(TypeLease, "26 01 0a000007 07 64656661756c74 05"+mac+"00 00"), ErrMalformed},
		{"lease, network without a name", with(TypeLease, "26 01 0a000007 00 05"+mac+"00 00"), ErrMalformed},
		{"lease, network name with escape", with(TypeLease, "26 01 0a000007 02 1b63 05"+mac+"00 00"), ErrMalformed},
		{"lease, network name not UTF-8", with(TypeLease, "26 01 0a000007 01 ff 05"+mac+"00 00"), ErrMalformed},
		{"lease, name of 129 bytes", with(TypeLease, "26 01 0a000007 8101"+strings.Repeat("61", 129)+"05"+mac+"00 00"), ErrMalformed},
		{"lease gone, with evidence", with(TypeLease, "a0 01 0a000007 05"), ErrMalformed},
		{"lease gone, with MAC", with(TypeLease, "84 01 0a000007 05"+mac), ErrMalformed},
		{"rival, unknown flag", with(TypeRival, "04 0a000007 02 01 24 0000000000000003 05"+mac+"00 00 00"), ErrMalformed},
		{"rival without claims", with(TypeRival, "00 0a000007 02 00"), ErrMalformed},
		{"rival, nine claims", with(TypeRival, "00 0a000007 09 09"+strings.Repeat("20 0000000000000003 05 00 00 00", 9)), ErrMalformed},
		{"rival of nobody", with(TypeRival, "00 0a000007 02 01 24 0000000000000000 05"+mac+"00 00 00"), ErrMalformed},
		{"ask 0", with(TypeAsk, "00 00 0a000007 05 00"), ErrMalformed},
		{"ask, unknown flag", with(TypeAsk, "04 01 0a000007 05 00"), ErrMalformed},
		{"verified, outcome 0", with(TypeVerified, "20 00 01 0a000007 05 00 00 00 00 00 00 00 00 00 00 00 00 00"), ErrMalformed},
		{"verified, unreachable", with(TypeVerified, "20 06 01 0a000007 05 00 00 00 00 00 00 00 00 00 00 00 00 00"), ErrMalformed},
		{"verified unasked, not gone", with(TypeVerified, "20 02 00 0a000007 05 00 00 00 00 00 00 00 00 00 00 00 00 00"), ErrMalformed},
		{"verified, details with an unknown flag", with(TypeVerified, "20 02 01 0a000007 05 00 00 00 00 00 00 00 00 00 00 00 02 00"), ErrMalformed},
		{"verified, a sandbox with an unknown flag", with(TypeVerified, "20 02 01 0a000007 05 00 00 00 00 00 00 00 00 00 00 02 00 00"), ErrMalformed},
		{"verified, a sandbox of 14 characters", with(TypeVerified, "20 02 01 0a000007 05 00 00 00 00 00 00 00 00 00 0e"+strings.Repeat("61", 14)+"00 00 00"), ErrMalformed},
		{"verified gone, with evidence", with(TypeVerified, "20 04 01 0a000007 05 00"), ErrMalformed},
		{"verified, reason with a new line", with(TypeVerified, "00 04 01 0a000007 05 01 0a"), ErrMalformed},
		{"verified, reason from right to left", with(TypeVerified, "00 04 01 0a000007 05 03 e280ae"), ErrMalformed},
		{"query 0", with(TypeQuery, "10 00 00"), ErrMalformed},
		{"query, kind 0", with(TypeQuery, "00 01 00"), ErrMalformed},
		{"query, kind 4", with(TypeQuery, "40 01 00"), ErrMalformed},
		{"query, flag v6 without address", with(TypeQuery, "11 01 00"), ErrMalformed},
		{"query for all stories", with(TypeQuery, "30 01 00"), ErrMalformed},
		{"query, page 1000", with(TypeQuery, "10 01 e807"), ErrMalformed},
		{"answer 0", with(TypeAnswer, "00 00 01 00"), ErrMalformed},
		{"answer of no pages", with(TypeAnswer, "01 00 00 00"), ErrMalformed},
		{"answer, page 1 of 1", with(TypeAnswer, "01 01 01 00"), ErrMalformed},
		{"answer of 1001 pages", with(TypeAnswer, "01 01 e907 00"), ErrMalformed},
		{"pair of a node without boot", with(TypePair, "01 61 03 622f62 0000000000000003 01 00 00 00"), ErrMalformed},
		{"pair in the wrong order", with(TypePair, "03 622f62 03 612f61 0000000000000003 01 00 00 00"), ErrMalformed},
		{"pair of one node", with(TypePair, "03 612f61 03 612f61 0000000000000003 01 00 00 00"), ErrMalformed},
		{"pair of nobody", with(TypePair, "03 612f61 03 622f62 0000000000000000 01 00 00 00"), ErrMalformed},
		{"pair, an example of none", with(TypePair, "03 612f61 03 622f62 0000000000000003 01 00 00 01 00 0a000007"), ErrMalformed},
		{"pair, four examples", with(TypePair, "03 612f61 03 622f62 0000000000000003 01 05 00 04"+strings.Repeat("00 0a000007", 4)), ErrMalformed},
		{"second entry broken", append(Encode(us, samples()["lease"]), 0x24), ErrMalformed},
	} {
		if got, err := entries(t, test.b); !errors.Is(err, test.want) {
			t.Errorf("%s: %+v, %v, want %v", test.name, got, err, test.want)
		}
	}
}

// TestOtherVersion: packets of an agent before or after this one say so and from whom they
// are, whatever is in them.
func TestOtherVersion(t *testing.T) {
	for _, e := range samples() {
		for _, other := range []byte{0, 1, version + 1, 255} {
			b := Encode(us, e)
			b[2], b[3] = other, 0xff
			if p, err := Decode(b); !errors.Is(err, ErrVersion) || p.Sender != us {
				t.Errorf("version %d: from %x, %v", other, p.Sender, err)
			}
		}
	}
	if p, err := Decode(Encode(us, Ack{1})); err != nil || p.Header != (Header{Type: TypeAck, Sender: us}) || Encode(us, Ack{1})[2] != 2 {
		t.Errorf("of this version: %+v, %v", p, err)
	}
}

func TestOtherType(t *testing.T) {
	p, err := Decode(Encode(us, Ack{1}))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Leases(); !errors.Is(err, ErrType) {
		t.Errorf("leases of an ack: %+v, %v", got, err)
	}
}

func TestReasons(t *testing.T) {
	for err, want := range map[error]string{
		ErrMagic: "magic", ErrVersion: "version", ErrType: "type", ErrOversize: "oversize", ErrMalformed: "malformed",
	} {
		if got := Reason(fmt.Errorf("decoding: %w", err)); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}
