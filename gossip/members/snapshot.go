package members

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// memberlist tells nobody whom it suspects: there is no event for it, the State of the
// nodes that it hands out is never set, and a node that left looks like one that died. It
// tells its peers, though, in every exchange of state. So it is asked as a peer asks, over
// a stream that stays in this process.

const (
	snapshotTimeout = 5 * time.Second
	// maxSnapshot is the size in bytes of the largest answer that is read.
	maxSnapshot = 64 << 20

	// Of memberlist's protocol, see its net.go and security.go.
	pushPullMessage  = 6
	encryptedMessage = 10
	cipherVersion    = 1
	nonceSize        = 12
)

// The messages of an exchange, as memberlist has them.
type (
	stateHeader struct {
		Nodes        int
		UserStateLen int
		Join         bool
	}
	nodeState struct {
		Name  string
		State memberlist.NodeStateType
	}
)

// refresh brings the states of the table up to date, if they are older than age.
func (m *Members) refresh(age time.Duration) {
	m.asking.Lock()
	defer m.asking.Unlock()
	if time.Since(m.asked) < age {
		return
	}
	states, err := m.snapshot()
	if err != nil {
		m.log.Debug("reading the state of memberlist", "error", err)
		return
	}
	m.asked = time.Now()
	m.table.apply(states, m.asked)
}

// snapshot is what memberlist tells its peers.
func (m *Members) snapshot() (map[wire.MemberID]memberlist.NodeStateType, error) {
	conn, err := m.transport.dialSelf(snapshotTimeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(snapshotTimeout)); err != nil {
		return nil, err
	}
	if err := m.ask(conn); err != nil {
		return nil, fmt.Errorf("asking: %w", err)
	}
	answer, err := m.answer(conn)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return readStates(answer)
}

// ask sends a state without any node, which tells memberlist nothing.
func (m *Members) ask(conn net.Conn) error {
	if err := memberlist.AddLabelHeaderToStream(conn, m.label); err != nil {
		return err
	}
	var request bytes.Buffer
	request.WriteByte(pushPullMessage)
	if err := codec.NewEncoder(&request, new(codec.MsgpackHandle)).Encode(stateHeader{}); err != nil {
		return err
	}
	message := request.Bytes()
	if m.keys != nil {
		var err error
		if message, err = seal(m.keys.ring.GetPrimaryKey(), message, m.label); err != nil {
			return err
		}
	}
	_, err := conn.Write(message)
	return err
}

// answer reads the answer, and opens it.
func (m *Members) answer(conn net.Conn) (io.Reader, error) {
	var reader io.Reader = bufio.NewReader(io.LimitReader(conn, maxSnapshot))
	if m.keys != nil {
		plain, err := unseal(m.keys.ring.GetKeys(), reader, m.label)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(plain)
	}
	var kind [1]byte
	if _, err := io.ReadFull(reader, kind[:]); err != nil {
		return nil, err
	}
	if kind[0] != pushPullMessage {
		return nil, fmt.Errorf("it has type %d", kind[0])
	}
	return reader, nil
}

func readStates(answer io.Reader) (map[wire.MemberID]memberlist.NodeStateType, error) {
	decoder := codec.NewDecoder(answer, new(codec.MsgpackHandle))
	var header stateHeader
	if err := decoder.Decode(&header); err != nil {
		return nil, err
	}
	states := map[wire.MemberID]memberlist.NodeStateType{}
	for range header.Nodes {
		var node nodeState
		if err := decoder.Decode(&node); err != nil {
			return nil, err
		}
		if id, ok := nameID(node.Name); ok {
			states[id] = node.State
		}
	}
	return states, nil
}

// apply takes over what memberlist thinks of the members.
func (t *table) apply(states map[wire.MemberID]memberlist.NodeStateType, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, state := range states {
		e := t.entries[id]
		switch {
		case e == nil:
		case e.here() && state == memberlist.StateSuspect && e.State == cluster.Alive:
			e.State, e.Since = cluster.Suspect, now
		case e.here() && state == memberlist.StateAlive && e.State == cluster.Suspect:
			e.State, e.Since = cluster.Alive, now
		case e.unsure && state == memberlist.StateLeft:
			e.State, e.unsure = cluster.Left, false
		case e.unsure && state == memberlist.StateDead:
			e.unsure = false
		}
	}
}

// additional is the data that a sealed message begins with and its seal covers.
func additional(prefix []byte, label string) []byte {
	return append(bytes.Clone(prefix), label...)
}

// seal encrypts a message as memberlist does on streams.
func seal(key, message []byte, label string) ([]byte, error) {
	gcm, err := newGCM(key)
	if err != nil {
		return nil, err
	}
	out := []byte{encryptedMessage}
	out = binary.BigEndian.AppendUint32(out, uint32(1+nonceSize+len(message)+gcm.Overhead()))
	data := additional(out, label)
	nonce := make([]byte, nonceSize)
	rand.Read(nonce)
	out = append(append(out, cipherVersion), nonce...)
	return gcm.Seal(out, nonce, message, data), nil
}

var errSealed = errors.New("it is not encrypted as expected")

// unseal reads and decrypts such a message.
func unseal(keys [][]byte, reader io.Reader, label string) ([]byte, error) {
	prefix := make([]byte, 5)
	if _, err := io.ReadFull(reader, prefix); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(prefix[1:])
	if prefix[0] != encryptedMessage || size <= 1+nonceSize || size > maxSnapshot {
		return nil, errSealed
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(reader, body); err != nil {
		return nil, err
	}
	return openWith(keys, body, additional(prefix, label))
}

// openWith decrypts what begins with a version and a nonce, by any of the keys.
func openWith(keys [][]byte, body, data []byte) ([]byte, error) {
	if len(body) < 1+nonceSize {
		return nil, errSealed
	}
	plain := make([]byte, 0, len(body))
	for _, key := range keys {
		gcm, err := newGCM(key)
		if err != nil {
			return nil, err
		}
		if plain, err := gcm.Open(plain, body[1:1+nonceSize], body[1+nonceSize:], data); err == nil {
			return plain, nil
		}
	}
	return nil, errSealed
}

func newGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
