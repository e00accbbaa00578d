package members

import (
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/gossip/wire"
)

var example = identity{Name: "n1", Boot: "4f5c", Epoch: 42, Version: "v1.2.3"}

func TestMetadata(t *testing.T) {
	longest := identity{
		Name: strings.Repeat("n", maxName), Boot: strings.Repeat("b", maxBoot), Epoch: -1, Version: strings.Repeat("v", maxVersion),
	}
	if size := len(longest.encode()); size > memberlist.MetaMaxSize {
		t.Errorf("metadata has %d bytes", size)
	}
	for _, id := range []identity{example, longest, {Name: "ñ", Boot: "b"}} {
		name := memberName(id.Name, id.id())
		got, err := decodeIdentity(name, id.encode())
		if err != nil || got != id {
			t.Errorf("%v: %v, %v", id, got, err)
		}
		// Later versions may append something.
		if got, err := decodeIdentity(name, append(id.encode(), 1, 2, 3)); err != nil || got != id {
			t.Errorf("%v with more: %v, %v", id, got, err)
		}
	}
}

func TestMetadataRefused(t *testing.T) {
	good := example.encode()
	name := memberName(example.Name, example.id())
	for size := range good {
		if id, err := decodeIdentity(name, good[:size]); err == nil {
			t.Errorf("cut to %d bytes: %v", size, id)
		}
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x80
		if id, err := decodeIdentity(name, bad); err == nil && id.Version == example.Version {
			t.Errorf("byte %d changed: %v", i, id)
		}
	}
	other := example
	other.Epoch++
	if _, err := decodeIdentity(name, other.encode()); err == nil {
		t.Error("the metadata of another incarnation")
	}
	for _, id := range []identity{
		{Boot: "b"},
		{Name: "n"},
		{Name: "n/1", Boot: "b"},
		{Name: "n\n", Boot: "b"},
		{Name: "n\xff", Boot: "b"},
		{Name: "n\u202e", Boot: "b"},
		{Name: "n", Boot: "b/c"},
		{Name: "n", Boot: "b", Version: "\x1b[31m"},
		{Name: strings.Repeat("n", maxName+1), Boot: "b"},
		{Name: "n", Boot: strings.Repeat("b", 255)},
	} {
		if _, err := decodeIdentity(memberName(id.Name, id.id()), id.encode()); err == nil {
			t.Errorf("%+v is taken", id)
		}
		if _, err := Open(Options{Node: id.Name, Boot: id.Boot, Version: id.Version, Bind: "127.0.0.1"}); err == nil {
			t.Errorf("an agent starts as %+v", id)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add(memberName(example.Name, example.id()), example.encode())
	f.Add("n/0000000000000000", []byte{metadataVersion})
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		id, err := decodeIdentity(name, b)
		if err != nil {
			return
		}
		if got, err := decodeIdentity(memberName(id.Name, id.id()), id.encode()); err != nil || got != id {
			t.Errorf("%v: %v, %v", id, got, err)
		}
		if got, ok := nameID(name); !ok || got != id.id() {
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
