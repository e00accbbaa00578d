package members

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

const oldCipher = 0

// sealedStream is a message that a member may have sealed, and somebody has changed the
// one byte of that the seal does not cover.
func sealedStream(t *testing.T, key string, plain []byte, version byte) []byte {
	t.Helper()
	b, err := seal(decodeKey(t, key), plain, "test")
	if err != nil {
		t.Fatal(err)
	}
	b[5] = version
	return b
}

// sealedDatagram is the same for datagrams, with the cluster's label.
func sealedDatagram(t *testing.T, key string, plain []byte, version byte) []byte {
	t.Helper()
	gcm, err := newGCM(decodeKey(t, key))
	if err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, nonceSize)
	return labelled(gcm.Seal(append([]byte{version}, nonce...), nonce, plain, []byte("test")))
}

// sealsOf open what is sealed by a key.
func sealsOf(t *testing.T, key string) *seals {
	t.Helper()
	ring, err := memberlist.NewKeyring(nil, decodeKey(t, key))
	if err != nil {
		t.Fatal(err)
	}
	return &seals{ring: ring, label: "test"}
}

func decodeKey(t *testing.T, text string) []byte {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Who has recorded what members say, and has no key, must not end an agent with it: in the
// old way of sealing the last byte is a number of bytes to cut off.
func TestOldCipher(t *testing.T) {
	key := keyText(1, 32)
	secret := func(o *Options) { o.KeyFile = keyFile(t, key) }
	n := open(t, 1, secret)
	other := open(t, 2, secret, joining(n))
	const all = "n1:alive n2:alive"
	eventually(t, "two", func() bool { return n.states() == all && other.states() == all })
	cuts := bytes.Repeat([]byte{255}, 40)

	conn, err := net.Dial("udp", n.Self().Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := n.drops[dropKey].Load()
	for _, plain := range [][]byte{cuts, {255}, {}} {
		conn.Write(sealedDatagram(t, key, plain, oldCipher))
	}
	conn.Write(labelled(nil))
	conn.Write(labelled([]byte{oldCipher}))
	eventually(t, "they are counted", func() bool { return n.drops[dropKey].Load() >= before+4 })
	problems := strings.Join(n.Status().Problems, "\n")
	if !strings.Contains(problems, "messages that none of the keys decrypts, the last from 127.0.0.1:") {
		t.Errorf("problems: %q", problems)
	}

	for name, b := range map[string][]byte{
		"sealed in the old way": sealedStream(t, key, cuts, oldCipher),
		"nothing, sealed":       sealedStream(t, key, nil, cipherVersion),
	} {
		before := n.drops[dropStream].Load()
		conn, err := net.Dial("tcp", n.Self().Address)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(labelled(b))
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if size, err := conn.Read(make([]byte, 1)); size > 0 || errIsTimeout(err) {
			t.Errorf("%s: answered %d bytes, %v", name, size, err)
		}
		conn.Close()
		if n.drops[dropStream].Load() != before+1 {
			t.Errorf("%s: not counted", name)
		}
	}
	if got := n.states(); got != all {
		t.Error(got)
	}
}

// Whoever is asked for the list of members may be anybody.
func TestHostileAnswers(t *testing.T) {
	key := keyText(1, 32)
	for name, answer := range map[string][]byte{
		"sealed in the old way": sealedStream(t, key, bytes.Repeat([]byte{255}, 40), oldCipher),
		"nothing, sealed":       sealedStream(t, key, nil, cipherVersion),
		"much that is sealed":   {encryptedMessage, 0xff, 0xff, 0xff, 0xff, cipherVersion},
		"a list without end":    pack(t, pushPullMessage, stateHeader{Nodes: 1 << 30}),
		"no gossip":             []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.99:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			n := open(t, 1, func(o *Options) {
				o.KeyFile, o.Join = keyFile(t, key), []string{listener.Addr().String()}
			})
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// It has said all that it has to say.
			if _, err := bufio.NewReader(conn).Peek(100); err != nil {
				t.Fatal(err)
			}
			conn.Write(answer)
			conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			rest := make([]byte, 1<<16)
			for err == nil {
				_, err = conn.Read(rest)
			}
			if errIsTimeout(err) {
				t.Error("the agent still listens to it")
			}
			eventually(t, "it is said", func() bool {
				return slices.ContainsFunc(n.Status().Problems, func(p string) bool { return strings.Contains(p, listener.Addr().String()) })
			})
		})
	}
}

// What members answer is let through: the acknowledgement of a ping, an error, and no more
// of either than anything may have.
func TestOrdinaryAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		answer []byte
		want   int
	}{
		"acknowledged": {[]byte{ackMessage, 0x80}, 2},
		"refused":      {append([]byte{errorMessage}, "reason"...), 7},
		"a long text":  {append([]byte{errorMessage}, make([]byte, 2*maxStream)...), maxStream},
		"nothing":      {nil, 0},
	} {
		near, far := net.Pipe()
		go func() {
			far.Write(test.answer)
			far.Close()
		}()
		if got, err := io.ReadAll(newDialled(&stream{Conn: near, release: func() {}, drops: new(drops), room: newRoom(maxStream, maxStream)}, nil)); len(got) != test.want || err != nil {
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, test.want)
		}
		near.Close()
	}
}
