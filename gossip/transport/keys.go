package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/sys/unix"
)

const (
	maxKeyFile = 16 << 10
	maxKeys    = 16
	keyPoll    = 10 * time.Second
)

// Keys are the keys of a file, which may change while they are used. It is safe for concurrent use.
type Keys struct {
	path  string
	log   *slog.Logger
	inUse atomic.Pointer[[]key]

	mu      sync.Mutex
	stamp   stamp // of the content in use
	problem string
}

// key is one key of the file, and what is derived from it.
type key struct {
	aead cipher.AEAD // of datagrams
	// Both sides of a stream prove that they have the private key of this certificate.
	certificate tls.Certificate
	public      ed25519.PublicKey
}

// stamp tells one content of a file from another. Volumes of Kubernetes change by a link
// that turns to another file, so the inode is part of it.
type stamp struct {
	inode, device uint64
	size          int64
	modified      time.Time
	mode          fs.FileMode
}

// OpenKeys reads the keys of a file: one a line, 16, 24 or 32 bytes in base64. The first seals, all
// open. Empty lines and those that begin with # are skipped. Only its owner may be able to write the
// file. Errors are for users and never quote it.
func OpenKeys(path string, log *slog.Logger) (*Keys, error) {
	list, at, err := readKeys(path)
	if err != nil {
		return nil, err
	}
	k := &Keys{path: path, log: log, stamp: at}
	if err := k.use(list); err != nil {
		return nil, err
	}
	k.warn()
	return k, nil
}

// CountKeys reads a file of keys as [OpenKeys] does and returns their number.
func CountKeys(path string) (int, error) {
	list, _, err := readKeys(path)
	return len(list), err
}

// list returns the keys, at least one.
func (k *Keys) list() []key { return *k.inUse.Load() }

// use derives what is needed from keys, and uses them from now on.
func (k *Keys) use(list [][]byte) error {
	keys := make([]key, 0, len(list))
	for _, secret := range list {
		derived, err := deriveKey(secret)
		if err != nil {
			return fmt.Errorf("gossip key file %s: %w", k.path, err)
		}
		keys = append(keys, derived)
	}
	k.inUse.Store(&keys)
	return nil
}

// deriveKey makes a key for datagrams and a key pair for streams of one secret (RFC 5869).
func deriveKey(secret []byte) (key, error) {
	sealing, err := hkdf.Key(sha256.New, secret, nil, format+" datagrams", chacha20poly1305.KeySize)
	if err != nil {
		return key{}, err
	}
	aead, err := chacha20poly1305.NewX(sealing)
	if err != nil {
		return key{}, err
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, format+" streams", ed25519.SeedSize)
	if err != nil {
		return key{}, err
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	// Nothing in the certificate counts but its key.
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return key{}, err
	}
	return key{aead, tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: private}, public}, nil
}

// serverTLS and clientTLS are the configurations of the two sides of a stream: each shows the
// certificate of the first key, and accepts those of all keys. Nobody resumes a session: that would
// not show a certificate.
func (k *Keys) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{k.list()[0].certificate},
		ClientAuth: tls.RequireAnyClientCert, VerifyConnection: k.verify, SessionTicketsDisabled: true,
	}
}

func (k *Keys) clientTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{k.list()[0].certificate},
		InsecureSkipVerify: true, //nolint:gosec // verify pins the key instead of a name
		VerifyConnection:   k.verify,
	}
}

// verify accepts a side that has proven to have one of the keys.
func (k *Keys) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) > 0 {
		public, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
		if ok && slices.ContainsFunc(k.list(), func(own key) bool { return own.public.Equal(public) }) {
			return nil
		}
	}
	return errOtherKey
}

func (k *Keys) warn() {
	if k.stamp.mode&0o004 != 0 {
		k.log.Warn("all users of this node can read the gossip keys; run chmod o-r", "file", k.path)
	}
}

// watch takes over what changes in the file, until ctx ends. What cannot be read changes
// nothing.
func (k *Keys) watch(ctx context.Context) {
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
func (k *Keys) look() {
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
	if err := k.use(list); err != nil {
		k.problem = err.Error()
		return
	}
	k.stamp = at
	k.log.Info("gossip keys read again", "file", k.path, "keys", len(list))
	k.warn()
	k.solved()
}

func (k *Keys) solved() {
	if k.problem != "" {
		k.log.Info("gossip keys can be read again", "file", k.path)
		k.problem = ""
	}
}

// problems is a clause for people, or none.
func (k *Keys) problems() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.problem == "" {
		return nil
	}
	return []string{k.problem}
}

// readKeys reads a file of keys, see [OpenKeys].
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
		if len(key) != 16 && len(key) != 24 && len(key) != 32 {
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
