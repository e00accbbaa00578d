package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/gossip/transport"
)

const (
	maxPeers     = 64
	maxPeersFile = 64 << 10
	peersPause   = time.Minute
)

// peersFile remembers members over a restart: the duplicate address that this agent is to
// find may be the name server's.
type peersFile struct {
	path string // empty: nothing is remembered
	log  *slog.Logger

	mu      sync.Mutex
	last    []netip.AddrPort // as read or written
	problem string
}

// peersDocument is the file.
type peersDocument struct {
	Peers []netip.AddrPort `json:"peers"`
}

// openPeers reads the file. One that makes no sense is set aside; none of its troubles
// keeps an agent from working.
func openPeers(path string, log *slog.Logger) *peersFile {
	p := &peersFile{path: path, log: log}
	if path == "" {
		return p
	}
	peers, err := readPeers(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errPeers):
		aside := path + ".corrupt"
		log.Error("the file of known members is invalid; it was renamed", "file", path, "aside", aside, "error", err)
		p.problem = fmt.Sprintf("the file of known members was invalid; see %s", aside)
		if err := os.Rename(path, aside); err != nil {
			p.problem = fmt.Sprintf("the file of known members is invalid and cannot be renamed: %v", err)
		}
	case err != nil:
		log.Error("reading the known members", "error", err)
		p.problem = fmt.Sprintf("reading the known members: %v", err)
	}
	p.last = peers
	return p
}

var errPeers = errors.New("not a list of members")

func readPeers(path string) ([]netip.AddrPort, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxPeersFile+1))
	if err != nil {
		return nil, err
	}
	return parsePeers(data)
}

func parsePeers(data []byte) ([]netip.AddrPort, error) {
	var document peersDocument
	if len(data) > maxPeersFile {
		return nil, fmt.Errorf("%w: more than %d bytes", errPeers, maxPeersFile)
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, fmt.Errorf("%w: %w", errPeers, err)
	}
	if len(document.Peers) > maxPeers {
		return nil, fmt.Errorf("%w: more than %d", errPeers, maxPeers)
	}
	for i, at := range document.Peers {
		document.Peers[i] = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		if err := transport.CheckAddress(document.Peers[i]); err != nil {
			return nil, fmt.Errorf("%w: %w", errPeers, err)
		}
	}
	return document.Peers, nil
}

// known are the members of the last run.
func (p *peersFile) known() []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.last)
}

// remember writes members that are there, once a minute until ctx ends.
func (m *Members) remember(ctx context.Context) {
	ticker := time.NewTicker(peersPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.peers.write(m.addresses())
		}
	}
}

// write remembers some of the members that are there. Who is alone keeps what was known,
// and as long as those that were written are there it stays with them.
func (p *peersFile) write(there map[netip.AddrPort]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path == "" || len(there) == 0 {
		return
	}
	peers := slices.DeleteFunc(slices.Clone(p.last), func(at netip.AddrPort) bool { return !there[at] })
	if len(peers) == len(p.last) && len(peers) == min(len(there), maxPeers) {
		return
	}
	for _, at := range firstOf(there, len(there)) {
		if len(peers) < maxPeers && !slices.Contains(peers, at) {
			peers = append(peers, at)
		}
	}
	slices.SortFunc(peers, netip.AddrPort.Compare)
	data, err := json.MarshalIndent(peersDocument{peers}, "", "  ")
	if err == nil {
		err = renameio.WriteFile(p.path, append(data, '\n'), 0o600)
	}
	if err != nil {
		if p.problem == "" {
			p.log.Error("writing the known members", "error", err)
		}
		p.problem = fmt.Sprintf("writing the known members: %v", err)
		return
	}
	p.last, p.problem = peers, ""
}

// problems is a clause for people, or none.
func (p *peersFile) problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem == "" {
		return nil
	}
	return []string{p.problem}
}
