package transport

import (
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
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/chacha20poly1305"
)

const (
	maxKeyFile = 16 << 10
	maxKeys    = 16
	keyPoll    = 10 * time.Second
)

// Keys are the keys of a file, which may change while they are used. It is safe for concurrent use.
type Keys struct {
	path    string
	log     *slog.Logger
	inUse   atomic.Pointer[[]key]
	problem atomic.Pointer[string] // nil if the file could be read
}

// key is one key of the file, and what is derived from it.
type key struct {
	secret []byte
	aead   cipher.AEAD // of datagrams
	// Both sides of a stream prove that they have the private key of this certificate.
	certificate tls.Certificate
	public      ed25519.PublicKey
}

// OpenKeys reads the keys of a file: one a line, 16, 24 or 32 bytes in base64. The first seals, all
// open. Empty lines and those that begin with # are skipped. Only its owner may be able to write the
// file. Errors are for users and never quote it.
func OpenKeys(path string, log *slog.Logger) (*Keys, error) {
	k := &Keys{path: path, log: log}
	k.inUse.Store(new([]key))
	if _, err := k.read(); err != nil {
		return nil, err
	}
	return k, nil
}

// CountKeys reads a file of keys as [OpenKeys] does and returns their number.
func CountKeys(path string) (int, error) {
	secrets, _, err := readKeys(path)
	return len(secrets), err
}

// list returns the keys, at least one.
func (k *Keys) list() []key { return *k.inUse.Load() }

// read reads the file, and uses its keys from now on. It reports whether they are others than before.
func (k *Keys) read() (changed bool, err error) {
	secrets, mode, err := readKeys(k.path)
	if err != nil {
		return false, err
	}
	if slices.EqualFunc(secrets, k.list(), func(secret []byte, known key) bool { return bytes.Equal(secret, known.secret) }) {
		return false, nil
	}
	keys := make([]key, len(secrets))
	for i, secret := range secrets {
		if keys[i], err = deriveKey(secret); err != nil {
			return false, fmt.Errorf("gossip key file %s: %w", k.path, err)
		}
	}
	k.inUse.Store(&keys)
	if mode&0o004 != 0 {
		k.log.Warn("all users of this node can read the gossip keys; run chmod o-r", "file", k.path)
	}
	return true, nil
}

// deriveKey makes a key for datagrams and a key pair for streams of one secret (RFC 5869).
func deriveKey(secret []byte) (k key, err error) {
	derived, err := hkdf.Key(sha256.New, secret, nil, format, chacha20poly1305.KeySize+ed25519.SeedSize)
	if err != nil {
		return k, err
	}
	if k.aead, err = chacha20poly1305.NewX(derived[:chacha20poly1305.KeySize]); err != nil {
		return k, err
	}
	private := ed25519.NewKeyFromSeed(derived[chacha20poly1305.KeySize:])
	k.secret, k.public = secret, private.Public().(ed25519.PublicKey)
	// Nothing in the certificate counts but its key.
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, k.public, private)
	k.certificate = tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: private}
	return k, err
}

// tls returns the configuration of either side of a stream: it shows the certificate of the first key, and accepts
// those of all keys. Nobody resumes a session: that would not show a certificate, and nobody can choose a slow key
// exchange. The header of the stream is part of the handshake, so that it cannot be changed on its way.
func (k *Keys) tls(header []byte) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{k.list()[0].certificate},
		ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		InsecureSkipVerify: true, //nolint:gosec // verify pins the key instead of a name
		VerifyConnection:   k.verify,
		CurvePreferences:   []tls.CurveID{tls.X25519},
		NextProtos:         []string{string(header)},
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

// watch reads the file again and again until ctx ends. What cannot be read changes nothing.
func (k *Keys) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(keyPoll):
			k.reload()
		}
	}
}

func (k *Keys) reload() {
	changed, err := k.read()
	if err != nil {
		problem := err.Error() + "; the previous keys stay active"
		if was := k.problem.Swap(&problem); was == nil || *was != problem {
			k.log.Error("reading the gossip keys failed; the previous keys stay active", "error", err)
		}
	} else if k.problem.Swap(nil) != nil || changed {
		k.log.Info("gossip keys read again", "file", k.path, "keys", len(k.list()))
	}
}

// readKeys reads the secrets in a file of keys, see [OpenKeys].
func readKeys(path string) (secrets [][]byte, mode fs.FileMode, err error) {
	defer func() {
		if failed, ok := errors.AsType[*fs.PathError](err); ok {
			err = failed.Err
		}
		if err != nil {
			err = fmt.Errorf("gossip key file %s: %w", path, err)
		}
	}()
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	switch mode = info.Mode(); {
	case !mode.IsRegular():
		return nil, 0, errors.New("it is not a regular file")
	case mode&0o022 != 0:
		return nil, 0, fmt.Errorf("others than its owner may write it (mode %04o); chmod go-w", mode.Perm())
	case info.Size() > maxKeyFile:
		return nil, 0, fmt.Errorf("it has more than %d bytes", maxKeyFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	secrets, err = parseKeys(data)
	return secrets, mode, err
}

func parseKeys(data []byte) (secrets [][]byte, err error) {
	for i, line := range bytes.Split(data, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		secret, err := base64.StdEncoding.AppendDecode(nil, line)
		if err != nil {
			return nil, fmt.Errorf("line %d is not base64", i+1)
		}
		if len(secret) != 16 && len(secret) != 24 && len(secret) != 32 {
			return nil, fmt.Errorf("line %d has %d bytes; a key has 16, 24 or 32", i+1, len(secret))
		}
		if !slices.ContainsFunc(secrets, func(other []byte) bool { return bytes.Equal(secret, other) }) {
			secrets = append(secrets, secret)
		}
	}
	switch {
	case len(secrets) == 0:
		return nil, errors.New("it has no key; make one with: head -c 32 /dev/urandom | base64")
	case len(secrets) > maxKeys:
		return nil, fmt.Errorf("it has %d keys; %d are allowed", len(secrets), maxKeys)
	}
	return secrets, nil
}
