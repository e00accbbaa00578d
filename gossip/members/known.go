package members

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/renameio/v2"

	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/internal/ownfile"
)

// maxKnown is how many members are remembered, in a file of at most maxKnownBytes.
const maxKnown, maxKnownBytes = 64, 16 << 10

// knownFile remembers members over a restart: the duplicate address that this agent is to
// find may be the name server's. It is safe for concurrent use.
type knownFile struct {
	path string // empty: nothing is remembered

	mu   sync.Mutex
	last []netip.AddrPort // as read or written
	err  error            // of reading or writing at last
}

// openKnown reads the file. If it cannot, the agent works without, and writes it anew.
func openKnown(path string) *knownFile {
	p := &knownFile{path: path}
	if path == "" {
		return p
	}
	data, err := ownfile.Read(path, maxKnownBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return p
	}
	var doc struct{ Members []netip.AddrPort }
	if err == nil {
		err = json.Unmarshal(data, &doc)
	}
	if err != nil {
		p.err = fmt.Errorf("reading the known members from %s: %w", path, err)
	}
	for _, at := range doc.Members[:min(len(doc.Members), maxKnown)] {
		if at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()); transport.CheckAddress(at) == nil {
			p.last = append(p.last, at)
		}
	}
	return p
}

// write remembers some of the members that are there. Who is alone keeps what was known,
// and as long as those that were written are there it stays with them.
func (p *knownFile) write(there map[netip.AddrPort]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path == "" || len(there) == 0 {
		return
	}
	known := slices.DeleteFunc(slices.Clone(p.last), func(at netip.AddrPort) bool { return !there[at] })
	if len(known) == len(p.last) && len(known) == min(len(there), maxKnown) && p.err == nil {
		return
	}
	for _, at := range firstOf(there, len(there)) {
		if len(known) < maxKnown && !slices.Contains(known, at) {
			known = append(known, at)
		}
	}
	data, err := json.MarshalIndent(map[string]any{"members": known}, "", "  ")
	if err == nil {
		err = renameio.WriteFile(p.path, append(data, '\n'), 0o600)
	}
	if p.err = err; err != nil {
		p.err = fmt.Errorf("writing the known members: %w", err)
		return
	}
	p.last = known
}
