// Package state keeps the detector's conflicts on disk, so that they outlive the agent:
// kill -9, a restart, an upgrade.
//
// It owns one JSON document in a folder of its own, its format and its validation. It
// never keeps the agent from starting or running: what cannot be read is set aside, what
// cannot be written is said and tried again. It must not know when a conflict changes
// nor what becomes of those that come back.
package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/detector"
)

// DefaultDir is where the state is kept when nothing else is said.
const DefaultDir = "/var/lib/dupip"

const (
	fileName = "state.json"
	// maxBytes bounds the document, read or written.
	maxBytes = 16 << 20
	// corruptPrefix begins the names of documents that were set aside; at most
	// maxCorrupt of them are kept, the newest.
	corruptPrefix = fileName + ".corrupt-"
	maxCorrupt    = 3
)

// temporary are renameio's files for ours, left by an agent that was killed.
var temporary = regexp.MustCompile(`^\.state\.json[0-9]+$`)

// Options say whose state it is and where it is kept.
type Options struct {
	// Dir is made (0700) when it is missing.
	Dir string
	// Node, BootID and NodeID name the node, its present boot, and the two in one, as in
	// [detector.HolderID].
	Node, BootID, NodeID string
	// Log may be nil.
	Log *slog.Logger
}

// Store writes the state of one agent. Its methods may be called concurrently.
type Store struct {
	opts Options
	path string
	log  *slog.Logger
	wake chan struct{}
	// off: the folder belongs to another process; nothing is ever written.
	off bool

	mu      sync.Mutex
	pending *detector.Snapshot // the newest, not written yet
	status  status

	writer writer // of Run only
}

type status struct {
	written time.Time
	err     error
	bytes   int
}

// errLocked says that the folder is in use.
var errLocked = errors.New("another process uses the folder; give each agent a --state-dir of its own")

// Open takes the folder and reads what a former agent left. It always succeeds; what
// went wrong is logged in one line and shown by Status.
//
// On the same boot the conflicts come back as they were, with the present NodeID in the
// place of the former one, should that differ: the node was renamed, or an older agent
// had its epoch there. On another boot the open conflicts are history, resolved now: no
// pod survives a reboot, and the netns cookies that its holders are known by are given
// out anew. Suspicions are forgotten then, as they would have faded. Holders of other
// nodes are never touched.
func Open(opts Options) (*Store, detector.Snapshot) {
	s := &Store{
		opts: opts, path: filepath.Join(opts.Dir, fileName), log: opts.Log, wake: make(chan struct{}, 1),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.writer.take(opts.Dir); err != nil {
		s.status.err = err
		if s.off = errors.Is(err, errLocked); s.off {
			s.log.Warn("the state is not kept: conflicts and history will not outlive this agent",
				"folder", opts.Dir, "error", err)
			return s, detector.Snapshot{}
		}
		s.failed(err)
	}
	s.sweep()
	return s, s.load(time.Now())
}

// Status returns when this agent last wrote the state (zero for never), its size in
// bytes, and why it could not be written since; nil if all is well.
func (s *Store) Status() (written time.Time, bytes int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status.written, s.status.bytes, s.status.err
}

// load reads the document; what it cannot use is set aside.
func (s *Store) load(now time.Time) detector.Snapshot {
	data, err := readFile(s.path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return detector.Snapshot{}
	}
	if err != nil {
		s.setAside("conflicts and history of the former agent are lost", err, now, os.Rename)
		return detector.Snapshot{}
	}
	read, err := decode(data)
	if err == nil && read.bootID != s.opts.BootID && read.node != s.opts.Node {
		err = fmt.Errorf("it belongs to node %q", read.node)
	}
	if err != nil {
		s.setAside("conflicts and history of the former agent are lost", err, now, os.Rename)
		return detector.Snapshot{}
	}
	if read.leftOut > 0 {
		// The rest is good and stays until it is written again.
		lost := fmt.Sprintf("%d of %d conflicts of the former agent are lost",
			read.leftOut, read.leftOut+len(read.snapshot.Open)+len(read.snapshot.History))
		s.setAside(lost, read.why, now, os.Link)
	}
	if read.bootID == s.opts.BootID {
		renameNode(read.snapshot, read.nodeID, s.opts.NodeID)
	} else {
		afterReboot(&read.snapshot, now)
	}
	return read.snapshot
}

// renameNode replaces the former agent's node in the identity of its own holders.
func renameNode(snapshot detector.Snapshot, from, to string) {
	for _, c := range slices.Concat(snapshot.Open, snapshot.History) {
		for i := range c.Holders {
			if id := &c.Holders[i].Holder.ID; id.Node == from {
				id.Node = to
			}
		}
	}
}

// afterReboot turns the open conflicts of an earlier boot into history.
func afterReboot(snapshot *detector.Snapshot, now time.Time) {
	for _, c := range snapshot.Open {
		if c.State == detector.Confirmed {
			c.State, c.ResolvedAt = detector.Resolved, now
			snapshot.History = append(snapshot.History, c)
		}
	}
	snapshot.Open = nil
}

// readFile reads a regular file without following a link, waiting for a FIFO's writer
// or reading more than is allowed.
func readFile(path string) ([]byte, error) {
	// Looked at before it is opened, because opening a device may do something.
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file but %s", info.Mode().Type())
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file but %s", info.Mode().Type())
	}
	data, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("larger than %d bytes", maxBytes)
	}
	return data, nil
}

// setAside gives the document another name by put, makes room for it, and says so.
func (s *Store) setAside(lost string, why error, now time.Time, put func(from, to string) error) {
	aside := filepath.Join(s.opts.Dir, corruptPrefix+now.UTC().Format("20060102T150405.000000Z"))
	attributes := []any{"lost", lost, "error", why}
	if err := put(s.path, aside); err != nil {
		attributes = append(attributes, "file", s.path, "setAside", err)
	} else {
		attributes = append(attributes, "file", aside)
	}
	s.log.Warn("the state could not be read and was set aside", attributes...)
	var old []string
	for _, name := range s.names() {
		if strings.HasPrefix(name, corruptPrefix) {
			old = append(old, name) // in order of their times
		}
	}
	for _, name := range old[:max(len(old)-maxCorrupt, 0)] {
		// One that cannot be removed is in nobody's way.
		_ = os.Remove(filepath.Join(s.opts.Dir, name))
	}
}

// sweep removes the temporary files of a killed predecessor.
func (s *Store) sweep() {
	for _, name := range s.names() {
		if temporary.MatchString(name) {
			_ = os.Remove(filepath.Join(s.opts.Dir, name))
		}
	}
}

// names lists the folder in order; nothing when it cannot be read.
func (s *Store) names() []string {
	entries, err := os.ReadDir(s.opts.Dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
