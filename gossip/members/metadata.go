package members

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// The longest texts of an identity, in bytes. All fit memberlist's 512.
const (
	maxName    = 253
	maxBoot    = 64
	maxVersion = 64
)

// metadataVersion begins the metadata. Later versions of dupip may append to it what this
// one does not read; whatever changes its beginning takes another number, and splits the
// cluster.
const metadataVersion = 1

// identity is what a member tells of itself.
type identity struct {
	Name    string
	Boot    string
	Epoch   int64
	Version string
}

func (i identity) id() wire.MemberID { return wire.MemberIDOf(i.Name, i.Boot, i.Epoch) }

func (i identity) member() Member {
	return Member{ID: i.id(), Member: cluster.Member{
		Name: i.Name, Boot: i.Boot, Epoch: i.Epoch, Version: i.Version,
	}}
}

// memberName is the name in memberlist, which no two incarnations share.
func memberName(node string, id wire.MemberID) string {
	return fmt.Sprintf("%s/%016x", node, uint64(id))
}

// encode makes the metadata: version, id, epoch, then name, boot and version, each after
// its length.
func (i identity) encode() []byte {
	b := []byte{metadataVersion}
	b = binary.BigEndian.AppendUint64(b, uint64(i.id()))
	b = binary.BigEndian.AppendUint64(b, uint64(i.Epoch))
	for _, text := range []string{i.Name, i.Boot, i.Version} {
		b = append(b, byte(len(text)))
		b = append(b, text...)
	}
	return b
}

var errMetadata = errors.New("metadata is truncated")

// decodeIdentity reads the metadata of the member with that name in memberlist.
func decodeIdentity(name string, b []byte) (identity, error) {
	if len(b) < 17 {
		return identity{}, errMetadata
	}
	if b[0] != metadataVersion {
		return identity{}, fmt.Errorf("metadata has version %d", b[0])
	}
	id := wire.MemberID(binary.BigEndian.Uint64(b[1:]))
	i := identity{Epoch: int64(binary.BigEndian.Uint64(b[9:]))}
	b = b[17:]
	for _, text := range []*string{&i.Name, &i.Boot, &i.Version} {
		if len(b) == 0 {
			return identity{}, errMetadata
		}
		end := 1 + int(b[0])
		if len(b) < end {
			return identity{}, errMetadata
		}
		*text, b = string(b[1:end]), b[end:]
	}
	if err := errors.Join(
		wantText("node name", i.Name, maxName, true),
		wantText("boot id", i.Boot, maxBoot, true),
		wantText("version", i.Version, maxVersion, false),
	); err != nil {
		return identity{}, err
	}
	if id != i.id() {
		return identity{}, errors.New("metadata has the id of another member")
	}
	if name != memberName(i.Name, id) {
		return identity{}, errors.New("the name does not match the metadata")
	}
	return i, nil
}

// wantText says what is wrong with a text that names something.
func wantText(what, text string, longest int, needed bool) error {
	switch {
	case needed && text == "":
		return fmt.Errorf("the %s is empty", what)
	case len(text) > longest:
		return fmt.Errorf("the %s has %d bytes; %d are allowed", what, len(text), longest)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return fmt.Errorf("the %s has characters that cannot be printed", what)
	case strings.Contains(text, "/"):
		return fmt.Errorf("the %s has a slash", what)
	}
	return nil
}
