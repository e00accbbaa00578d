// Package state keeps the detector's conflicts, and what is known of interfaces since their pods were set up, on disk, so
// that they survive kill -9, a restart and an upgrade.
//
// It owns one JSON document in a directory of its own, its format and its validation. Failures never keep
// the agent from starting or running: an invalid file is renamed, a failed write is repeated, and both
// are logged. The package must not know when a conflict changes or what the detector restores.
package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/ownfile"
)

// DefaultDir is the default of --state-dir.
const DefaultDir = "/var/lib/dupip"

const (
	fileName = "state.json"
	maxBytes = 16 << 20 // of the document
	// corruptPrefix begins the names of invalid documents, of which the newest maxCorrupt are kept.
	corruptPrefix = fileName + ".corrupt-"
	maxCorrupt    = 3
)

// temporary matches renameio's temporary files, which a killed agent leaves.
var temporary = regexp.MustCompile(`^\.state\.json[0-9]+$`)

// Options configure a [Store].
type Options struct {
	// Dir is created (0700) if it is missing.
	Dir string
	// Node is the node's name, BootID its boot.
	Node, BootID string
	Log          *slog.Logger // may be nil
}

// Store writes the state of one agent. Its methods may be called concurrently.
type Store struct {
	opts    Options
	path    string
	pending chan State // the newest, not written yet
	off     bool       // another process uses the directory; nothing is ever written
	status  atomic.Pointer[status]
	writer  writer // of Run only
}

// State is what is kept.
type State struct {
	detector.Snapshot
	// Interfaces are those of the present boot.
	Interfaces []observe.Origin
	// Books are what the node's books said of conflicts, by the id of the conflict, and clean.
	Books map[string][]document.Book
	// Facts are what was known of holders, by the id of the conflict. They are clean and do not change.
	Facts map[string]map[detector.HolderID]*document.Facts
	// Acks say who works on conflicts, by the id of the conflict. They are clean and do not change.
	Acks map[string]*document.Ack
}

type status struct {
	written time.Time
	err     error
	bytes   int
}

var (
	errLocked  = errors.New("another process uses the directory; give each agent a --state-dir of its own")
	errForeign = errors.New("others could replace the state: chown root and chmod 700 the directory, or choose another --state-dir")
)

// CheckOwner returns an error if others than root and this process may write to a directory.
func CheckOwner(info *unix.Stat_t) error {
	if info.Uid != 0 && info.Uid != uint32(os.Geteuid()) || info.Mode&0o022 != 0 {
		return fmt.Errorf("%w (mode %04o, owner %d)", errForeign, info.Mode&0o777, info.Uid)
	}
	return nil
}

// Open locks the directory and reads the state of the previous agent. It always succeeds; it logs a failure
// in one line, and Status shows it.
//
// On the same boot it restores the conflicts, with the present name in this node's holders: the node may have
// been renamed. After a reboot confirmed conflicts become history, resolved now, and suspicions are dropped: no
// pod survives, and the kernel reuses netns cookies. Holders of other nodes do not change. Interfaces of an earlier boot are forgotten.
func Open(opts Options) (*Store, State) {
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	s := &Store{opts: opts, path: filepath.Join(opts.Dir, fileName), pending: make(chan State, 1)}
	s.status.Store(&status{})
	if err := s.writer.lock(opts.Dir); err != nil {
		if s.off = errors.Is(err, errLocked); s.off {
			s.status.Store(&status{err: err})
			s.opts.Log.Warn("the state is not kept: a restart will lose conflicts and history", "directory", opts.Dir, "error", err)
			return s, State{}
		}
		s.failed(err)
		if errors.Is(err, errForeign) {
			return s, State{}
		}
	}
	for _, name := range s.names() {
		if temporary.MatchString(name) {
			_ = os.Remove(filepath.Join(opts.Dir, name))
		}
	}
	return s, s.load(time.Now())
}

// Status returns when this agent last wrote the state (zero for never), its size in bytes, and the error
// of a later write that failed.
func (s *Store) Status() (written time.Time, bytes int, err error) {
	last := s.status.Load()
	return last.written, last.bytes, last.err
}

// load reads the document, and keeps an invalid one under another name.
func (s *Store) load(now time.Time) State {
	var read State
	var invalid []error
	data, err := ownfile.Read(s.path, maxBytes)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return State{}
	}
	if err == nil {
		read, invalid, err = Decode(data, s.opts, now)
	}
	if err != nil {
		s.keepCorrupt("conflicts and history of the previous agent are lost", err, now, os.Rename)
		return State{}
	}
	if n := len(invalid); n > 0 {
		// The document stays until the next write.
		lost := fmt.Sprintf("%d of %d conflicts of the previous agent are lost", n, n+len(read.Open)+len(read.History))
		s.keepCorrupt(lost, invalid[0], now, os.Link)
	}
	return read
}

// Decode reads a document for the agent with these options, as [Open] describes. It returns an error if the document is invalid or of
// another node, and those of conflicts that it leaves out because they are invalid.
func Decode(data []byte, opts Options, now time.Time) (s State, invalid []error, err error) {
	read, err := decode(data)
	if err == nil && read.BootID != opts.BootID && read.Node != opts.Node {
		err = fmt.Errorf("it belongs to node %q", read.Node)
	}
	if err != nil {
		return State{}, nil, err
	}
	if read.BootID == opts.BootID {
		renameNode(&read.State, cluster.NodeID(read.Node, read.BootID), cluster.NodeID(opts.Node, opts.BootID))
	} else {
		afterReboot(&read.Snapshot, now)
		read.Interfaces = nil
	}
	return read.State, read.invalid, nil
}

// renameNode replaces the previous agent's node in the identity of its own holders, their facts and books.
func renameNode(s *State, from, to string) {
	rename := func(list []detector.Binding) {
		for i := range list {
			if id := &list[i].Holder.ID; id.Node == from {
				id.Node = to
			}
		}
	}
	for _, c := range slices.Concat(s.Open, s.History) {
		rename(c.Holders)
	}
	rename(s.Former)
	for conflict, known := range s.Facts {
		renamed := make(map[detector.HolderID]*document.Facts, len(known))
		for id, facts := range known {
			if id.Node == from {
				id.Node = to
			}
			renamed[id] = facts
		}
		s.Facts[conflict] = renamed
	}
	for _, books := range s.Books {
		for i := range books {
			if books[i].NodeID() == from {
				books[i].Node = cluster.NodeName(to)
			}
		}
	}
}

// afterReboot moves the confirmed conflicts of an earlier boot to the history.
func afterReboot(snapshot *detector.Snapshot, now time.Time) {
	for _, c := range snapshot.Open {
		if c.State == detector.Confirmed {
			c.State, c.ResolvedAt = detector.Resolved, now
			snapshot.History = append(snapshot.History, c)
		}
	}
	snapshot.Open = nil
}

// keepCorrupt renames or links the document, logs that, and removes the oldest of such files.
func (s *Store) keepCorrupt(lost string, cause error, now time.Time, move func(from, to string) error) {
	corrupt := filepath.Join(s.opts.Dir, corruptPrefix+now.UTC().Format("20060102T150405.000000Z"))
	if err := move(s.path, corrupt); err != nil {
		s.opts.Log.Warn("the state is invalid; renaming the file failed", "lost", lost, "error", cause, "file", s.path, "renameError", err)
	} else {
		s.opts.Log.Warn("the state is invalid; the file was renamed", "lost", lost, "error", cause, "file", corrupt)
	}
	old := slices.DeleteFunc(s.names(), func(name string) bool { return !strings.HasPrefix(name, corruptPrefix) })
	for _, name := range old[:max(len(old)-maxCorrupt, 0)] { // in order of their times
		_ = os.Remove(filepath.Join(s.opts.Dir, name))
	}
}

// names lists the directory in order, as far as it can be read.
func (s *Store) names() (names []string) {
	entries, _ := os.ReadDir(s.opts.Dir)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
