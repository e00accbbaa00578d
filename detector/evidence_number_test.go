package detector

import "testing"

// The numbers between nodes are those of all versions, and one that is not known is no evidence.
func TestEvidenceNumbers(t *testing.T) {
	for e, want := range map[Evidence]byte{0: 0, Forwarded: 1, Data: 2, Announced: 3, Host: 4, Claimed: 5, Configured: 6, Host + 1: 0} {
		number, err := e.MarshalCBOR()
		if err != nil || len(number) != 1 || number[0] != want {
			t.Errorf("%s is %x, %v; want %x", e, number, err, want)
		}
		var back Evidence
		if err := back.UnmarshalCBOR(number); err != nil || want != 0 && back != e {
			t.Errorf("%x is %s, %v; want %s", number, back, err, e)
		}
	}
	for _, unknown := range []string{"\x07", "\x17", "\x18\x01", "\x18\xff"} {
		if e := Host; e.UnmarshalCBOR([]byte(unknown)) != nil || e != 0 {
			t.Errorf("%x is %s", unknown, e)
		}
	}
	for _, bad := range []string{"", "\x19\x01\x00", "\x61a", "\x20", "\xf6"} {
		if new(Evidence).UnmarshalCBOR([]byte(bad)) == nil {
			t.Errorf("%x is taken for evidence", bad)
		}
	}
}
