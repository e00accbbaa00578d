package members

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/sys/unix"
)

const (
	maxKeyFile = 16 << 10
	maxKeys    = 16
	keyPoll    = 10 * time.Second
)

// keys are the keys of a file, which may change while they are used.
type keys struct {
	path string
	log  *slog.Logger
	ring *memberlist.Keyring

	mu      sync.Mutex
	stamp   stamp // of the content in the ring
	problem string
}

// stamp tells one content of a file from another. Volumes of Kubernetes change by a link
// that turns to another file, so the inode is part of it.
type stamp struct {
	inode, device uint64
	size          int64
	modified      time.Time
	mode          fs.FileMode
}

// openKeys reads the keys to begin with.
func openKeys(path string, log *slog.Logger) (*keys, error) {
	list, at, err := readKeys(path)
	if err != nil {
		return nil, err
	}
	ring, err := memberlist.NewKeyring(list, list[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	k := &keys{path: path, log: log, ring: ring, stamp: at}
	k.warn()
	return k, nil
}

func (k *keys) warn() {
	if k.stamp.mode&0o004 != 0 {
		k.log.Warn("all users of this node can read the gossip keys; run chmod o-r", "file", k.path)
	}
}

// watch takes over what changes in the file, until ctx ends. What cannot be read changes
// nothing.
func (k *keys) watch(ctx context.Context) {
	ticker := time.NewTicker(keyPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			k.look()
		}
	}
}

// look reads the file if it changed.
func (k *keys) look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	info, err := os.Stat(k.path)
	if err == nil && stampOf(info) == k.stamp {
		k.solved()
		return
	}
	list, at, err := readKeys(k.path)
	if err != nil {
		text := err.Error() + "; the previous keys stay active"
		if text != k.problem {
			k.log.Error("reading the gossip keys again failed; the previous keys stay active", "error", err)
		}
		k.problem = text
		return
	}
	k.apply(list)
	k.stamp = at
	k.log.Info("gossip keys read again", "file", k.path, "keys", len(list))
	k.warn()
	k.solved()
}

func (k *keys) solved() {
	if k.problem != "" {
		k.log.Info("gossip keys can be read again", "file", k.path)
		k.problem = ""
	}
}

// apply makes the ring hold the keys of a list, in its order.
//
// A ring removes a key by moving those behind it, in a slice that others may be reading.
// So the keys to be removed are brought to the end first: each UseKey moves one key to
// the front.
func (k *keys) apply(list [][]byte) {
	for _, key := range list {
		k.ring.AddKey(key) // its size was checked
	}
	for _, key := range slices.Backward(list) {
		k.ring.UseKey(key)
	}
	for _, key := range slices.Backward(slices.Clone(k.ring.GetKeys()[len(list):])) {
		k.ring.RemoveKey(key)
	}
}

// problems is a clause for people, or none.
func (k *keys) problems() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.problem == "" {
		return nil
	}
	return []string{k.problem}
}

// readKeys reads a file of keys: one a line, 16, 24 or 32 bytes in base64. The first
// encrypts, all decrypt. Empty lines and those that begin with # are skipped. Only its
// owner may be able to write the file. Errors never quote it.
func readKeys(path string) ([][]byte, stamp, error) {
	list, at, err := loadKeys(path)
	if err != nil {
		if failed, ok := errors.AsType[*fs.PathError](err); ok {
			err = failed.Err
		}
		return nil, stamp{}, fmt.Errorf("gossip key file %s: %w", path, err)
	}
	return list, at, nil
}

func loadKeys(path string) ([][]byte, stamp, error) {
	// Opening a FIFO would wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, stamp{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	before := stampOf(info)
	switch {
	case !info.Mode().IsRegular():
		return nil, stamp{}, errors.New("it is not a regular file")
	case before.mode&0o022 != 0:
		return nil, stamp{}, fmt.Errorf("others than its owner may write it (mode %04o); chmod go-w", before.mode)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, stamp{}, err
	}
	if info, err = file.Stat(); err != nil {
		return nil, stamp{}, err
	} else if stampOf(info) != before {
		return nil, stamp{}, errors.New("it is being written")
	}
	list, err := parseKeys(data)
	return list, before, err
}

func parseKeys(data []byte) (list [][]byte, err error) {
	if len(data) > maxKeyFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxKeyFile)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for number := 1; lines.Scan(); number++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.AppendDecode(nil, line)
		if err != nil {
			return nil, fmt.Errorf("line %d is not base64", number)
		}
		if memberlist.ValidateKey(key) != nil {
			return nil, fmt.Errorf("line %d has %d bytes; a key has 16, 24 or 32", number, len(key))
		}
		if slices.ContainsFunc(list, func(other []byte) bool { return bytes.Equal(key, other) }) {
			continue
		}
		list = append(list, key)
	}
	switch {
	case lines.Err() != nil:
		return nil, lines.Err()
	case len(list) == 0:
		return nil, errors.New("it has no key; make one with: head -c 32 /dev/urandom | base64")
	case len(list) > maxKeys:
		return nil, fmt.Errorf("it has %d keys; %d are allowed", len(list), maxKeys)
	}
	return list, nil
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime(), mode: info.Mode().Perm()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode, s.device = stat.Ino, stat.Dev
	}
	return s
}
