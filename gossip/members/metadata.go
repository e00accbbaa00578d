package members

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// The longest texts of an identity, in bytes. All fit memberlist's 512.
const (
	maxName    = 253
	maxBoot    = 64
	maxVersion = 64
	maxRole    = 16
)

// metadata is what a member says of itself, in CBOR. Fields may be added; none is removed.
type metadata struct {
	Name    string `cbor:"1,keyasint"`
	Boot    string `cbor:"2,keyasint"`
	Epoch   int64  `cbor:"3,keyasint"`
	Version string `cbor:"4,keyasint,omitempty"`
	Role    string `cbor:"5,keyasint,omitempty"`
	// Leaving: the member is about to leave. Memberlist does not say whether a member left or died.
	Leaving bool `cbor:"6,keyasint,omitempty"`
	// Packs: the member reads packed packets.
	Packs bool `cbor:"7,keyasint,omitempty"`
	wire.Next
}

func (d metadata) member() Member {
	return Member{ID: wire.MemberIDOf(d.Name, d.Boot, d.Epoch), Member: cluster.Member{
		Name: d.Name, Boot: d.Boot, Epoch: d.Epoch, Version: d.Version, Role: cluster.Role(d.Role), Packs: d.Packs,
	}}
}

// check says what is wrong with what a member says of itself.
func (d metadata) check() error {
	return errors.Join(
		checkText("node name", d.Name, maxName, true),
		checkText("boot id", d.Boot, maxBoot, true),
		checkText("version", d.Version, maxVersion, false),
		checkText("role", d.Role, maxRole, false),
	)
}

// memberName is the name in memberlist, which no two incarnations share.
func memberName(node string, id wire.MemberID) string {
	return fmt.Sprintf("%s/%016x", node, uint64(id))
}

// nameID returns the incarnation in a name of memberlist.
func nameID(name string) (wire.MemberID, bool) {
	_, text, ok := strings.Cut(name, "/")
	id, err := strconv.ParseUint(text, 16, 64)
	return wire.MemberID(id), ok && err == nil
}

// decodeMetadata reads the metadata of the member with that name in memberlist.
func decodeMetadata(name string, b []byte) (d metadata, err error) {
	if len(b) > memberlist.MetaMaxSize {
		return metadata{}, fmt.Errorf("metadata of %d bytes", len(b))
	}
	if _, err := wire.Unmarshal(b, &d); err != nil {
		return metadata{}, fmt.Errorf("reading metadata: %w", err)
	}
	if err := d.check(); err != nil {
		return metadata{}, err
	}
	if name != memberName(d.Name, d.member().ID) {
		return metadata{}, errors.New("the name does not match the metadata")
	}
	return d, nil
}

// checkText says what is wrong with a text that names something.
func checkText(what, text string, longest int, needed bool) error {
	switch {
	case needed && text == "":
		return fmt.Errorf("the %s is empty", what)
	case text != wire.Clean(text, longest):
		return fmt.Errorf("the %s has more than %d bytes, or characters that cannot be printed", what, longest)
	case strings.Contains(text, "/"):
		return fmt.Errorf("the %s has a slash", what)
	}
	return nil
}
