package members

import (
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/gossip/wire"
)

var example = metadata{Name: "n1", Boot: "4f5c", Epoch: 42, Version: "v1.2.3"}

func nameOf(d metadata) string { return memberName(d.Name, d.member().ID) }

func TestMetadata(t *testing.T) {
	longest := metadata{
		Name: strings.Repeat("n", maxName), Boot: strings.Repeat("b", maxBoot), Epoch: -1 << 63,
		Version: strings.Repeat("v", maxVersion), Role: strings.Repeat("r", maxRole), Leaving: true,
	}
	if size := len(wire.Marshal(longest)); size > memberlist.MetaMaxSize {
		t.Errorf("metadata has %d bytes", size)
	}
	for _, d := range []metadata{example, longest, {Name: "ñ", Boot: "b"}} {
		if got, err := decodeMetadata(nameOf(d), wire.Marshal(d)); err != nil || got != d {
			t.Errorf("%v: %v, %v", d, got, err)
		}
	}
	later := wire.Marshal(struct {
		metadata
		Zone string `cbor:"90,keyasint"`
	}{example, "z"})
	if got, err := decodeMetadata(nameOf(example), later); err != nil || got != example {
		t.Errorf("of a later version: %v, %v", got, err)
	}
}

func TestMetadataRefused(t *testing.T) {
	good := wire.Marshal(example)
	for size := range good {
		if d, err := decodeMetadata(nameOf(example), good[:size]); err == nil {
			t.Errorf("cut to %d bytes: %v", size, d)
		}
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 0x80
		if d, err := decodeMetadata(nameOf(example), bad); err == nil && d.Version == example.Version {
			t.Errorf("byte %d changed: %v", i, d)
		}
	}
	other := example
	other.Epoch++
	if _, err := decodeMetadata(nameOf(example), wire.Marshal(other)); err == nil {
		t.Error("the metadata of another incarnation")
	}
	large := wire.Marshal(struct {
		metadata
		More string `cbor:"90,keyasint"`
	}{example, strings.Repeat("m", memberlist.MetaMaxSize)})
	if _, err := decodeMetadata(nameOf(example), large); err == nil {
		t.Errorf("metadata of %d bytes", len(large))
	}
	for _, d := range []metadata{
		{Boot: "b"},
		{Name: "n"},
		{Name: "n/1", Boot: "b"},
		{Name: "n\n", Boot: "b"},
		{Name: "n\xff", Boot: "b"},
		{Name: "n\u202e", Boot: "b"},
		{Name: "n", Boot: "b/c"},
		{Name: "n", Boot: "b", Version: "\x1b[31m"},
		{Name: "n", Boot: "b", Role: "r\x00"},
		{Name: strings.Repeat("n", maxName+1), Boot: "b"},
		{Name: "n", Boot: strings.Repeat("b", maxBoot+1)},
		{Name: "n", Boot: "b", Role: strings.Repeat("r", maxRole+1)},
	} {
		if _, err := decodeMetadata(nameOf(d), wire.Marshal(d)); err == nil {
			t.Errorf("%+v is accepted", d)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add(nameOf(example), wire.Marshal(example))
	f.Add("n/0000000000000000", []byte{0xa0})
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		d, err := decodeMetadata(name, b)
		if err != nil {
			return
		}
		if got, err := decodeMetadata(nameOf(d), wire.Marshal(d)); err != nil || got != d {
			t.Errorf("%v: %v, %v", d, got, err)
		}
		if got, ok := nameID(name); !ok || got != d.member().ID {
			t.Errorf("the id of %q is %v", name, got)
		}
	})
}

func TestNameID(t *testing.T) {
	id := wire.MemberID(0xabc)
	if got, ok := nameID(memberName("n", id)); !ok || got != id {
		t.Errorf("%x, %v", got, ok)
	}
	for _, name := range []string{"", "n", "n/", "n/x", "n/1/2", "n/11111111111111111"} {
		if id, ok := nameID(name); ok {
			t.Errorf("%q: %x", name, id)
		}
	}
}
