package members

import (
	"bytes"
	"compress/lzw"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/internal/testneeds"
)

// Types of memberlist's messages (its net.go).
const (
	aliveMessage    = "\x04"
	pushPullMessage = "\x06"
	compound        = "\x07"
	userMessage     = "\x08"
	compressed      = "\x09"
)

// encode returns a struct of names and values as memberlist encodes it.
func encode(fields ...any) string {
	b := []byte{0x80 | byte(len(fields)/2)}
	for _, field := range fields {
		switch v := field.(type) {
		case string:
			if len(v) < 32 {
				b = append(b, 0xa0|byte(len(v)))
			} else {
				b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(len(v)))
				if len(v) <= 0xffff {
					b = binary.BigEndian.AppendUint16(append(b[:len(b)-5], 0xda), uint16(len(v)))
				}
			}
			b = append(b, v...)
		case int:
			b = binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(v))
		case bool:
			b = append(b, 0xc2)
		}
	}
	return string(b)
}

// squeeze is a compressed message that unpacks to size zeros.
func squeeze(size int) string {
	var b bytes.Buffer
	w := lzw.NewWriter(&b, lzw.LSB, 8)
	w.Write(make([]byte, size)) //nolint:errcheck // it is memory
	w.Close()
	return compressed + encode("Algo", 0, "Buf", b.String())
}

// together is a compound message.
func together(parts ...string) string {
	b := append([]byte(compound), byte(len(parts)))
	for _, p := range parts {
		b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
	}
	return string(b) + strings.Join(parts, "")
}

// pushPull is a list of members.
func pushPull(announced, state int, entries ...string) string {
	return pushPullMessage + encode("Nodes", announced, "UserStateLen", state, "Join", false) + strings.Join(entries, "")
}

// entry is a member of such a list, alive and at an address where nobody is.
func entry(number int, version string) string {
	d := metadata{Name: fmt.Sprintf("ip-10-20-%d-%d.eu-central-1.compute.internal", number>>8, number&0xff), Boot: "7c1e8c9a-5f0e-4c43-9d3b-1d6ab3a3b0c9", Epoch: 12345678901234, Version: version}
	at := netip.AddrFrom4([4]byte{127, 1, byte(number >> 8), byte(number)}).AsSlice()
	return encode("Name", memberName(d.Name, d.member().ID), "Addr", string(at), "Port", 1, "Meta", string(wire.Marshal(d)),
		"Incarnation", 1, "State", 0, "Vsn", "\x01\x05\x02\x00\x00\x00")
}

// intruder is somebody with the key.
type intruder struct{ *transport.Transport }

func (intruder) Receive(wire.MemberID, netip.AddrPort, []byte) {}
func (intruder) Serve(context.Context, []byte) []byte          { return nil }

func newIntruder(t testing.TB, keyFile string) intruder {
	t.Helper()
	sockets, err := transport.Listen("127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := transport.New(transport.Options{
		ID: 99, Label: "test", KeyFile: keyFile, Handler: intruder{}, MemberID: nameID, Sockets: sockets, AllowLocal: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Shutdown() })
	return intruder{other}
}

// dial opens a stream to the memberlist of a node.
func (i intruder) dial(t *testing.T, to *node) net.Conn {
	t.Helper()
	conn, err := i.DialTimeout(to.self.Address, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // then it is closed
	t.Cleanup(func() { conn.Close() })
	return conn
}

// allocated is how many bytes were allocated since the start of the program.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// What somebody with the key sends costs little more memory than its bytes, is counted, and ends the stream.
func TestHostileMemberlist(t *testing.T) {
	victim, other := open(t, nil, 1), newIntruder(t, testKey())
	for name, message := range map[string]string{
		"a million members announced":     pushPull(1_000_000, 0),
		"negative numbers of members":     pushPull(-1, 0),
		"state announced":                 pushPull(0, 20<<20),
		"a message of a user announced":   userMessage + encode("UserMsgLen", 20<<20),
		"a compressed message":            squeeze(39 << 20),
		"a long name announced":           pushPull(1, 0, "\x81\xa4Name\xdb\x7f\xff\xff\xff"),
		"a long field announced":          pushPull(1, 0, "\x81\xdb\x7f\xff\xff\xff"),
		"an array of an array of an arra": pushPullMessage + strings.Repeat("\x91", 4096),
	} {
		t.Run(name, func(t *testing.T) {
			counted, before := victim.Status().Dropped["memberlist"], allocated()
			conn := other.dial(t, victim)
			io.WriteString(conn, message) //nolint:errcheck // it may be closed
			io.Copy(io.Discard, conn)     //nolint:errcheck // until it is closed
			cost := allocated() - before
			t.Logf("%d bytes cost %.2f MiB", len(message), float64(cost)/(1<<20))
			if cost > 2<<20+8*uint64(len(message)) {
				t.Errorf("%d bytes cost %d MiB", len(message), cost>>20)
			}
			within(t, "it is counted", time.Minute, func() bool { return victim.Status().Dropped["memberlist"] == counted+1 })
		})
	}
	address := memberlist.Address{Addr: victim.self.Address, Name: memberName(victim.self.Name, victim.self.ID)}
	for name, message := range map[string]string{
		"a compressed datagram":      squeeze(230_000),
		"compressed within":          together(squeeze(30_000), squeeze(30_000), squeeze(30_000)),
		"compressed within a second": together(together(squeeze(200_000))),
	} {
		t.Run(name, func(t *testing.T) {
			counted, before := victim.Status().Dropped["memberlist"], allocated()
			for range 100 {
				if _, err := other.WriteToAddress([]byte(message), address); err != nil {
					t.Fatal(err)
				}
			}
			within(t, "they are counted", time.Minute, func() bool { return victim.Status().Dropped["memberlist"] == counted+100 })
			cost := (allocated() - before) / 100
			t.Logf("%d bytes cost %d", len(message), cost)
			if cost > 10_000 {
				t.Errorf("%d bytes cost %d", len(message), cost)
			}
		})
	}
}

// Lists of the largest clusters arrive, and as many streams as there may be hold a bounded part of the memory while theirs do not end.
func TestListsOfMembers(t *testing.T) {
	if testneeds.Raced {
		t.Skip("5,000 members take half a minute with the race detector")
	}
	victim, other := open(t, nil, 1), newIntruder(t, testKey())
	var entries []string
	for i := range 5000 {
		entries = append(entries, entry(1+i, "v1.2.3-45-g0123456789ab"))
	}
	exchange := func(list string) int64 {
		conn := other.dial(t, victim)
		io.WriteString(conn, list) //nolint:errcheck // then there is no reply
		size, err := io.Copy(io.Discard, conn)
		if err != nil {
			t.Error(err)
		}
		return size
	}
	exchange(pushPull(5000, 0, entries...))
	within(t, "5,000 members are known", time.Minute, func() bool { return victim.count() == 5001 })
	t.Logf("a list of 5,000 members has %d bytes", exchange(pushPull(0, 0)))

	held := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	large := []byte(pushPull(32768, 0, strings.Repeat(entry(1, strings.Repeat("v", 400)), 9000))) // no valid member, but one of the largest
	before := held()
	written := make(chan bool, 100)
	for range cap(written) {
		conn := other.dial(t, victim)
		go func() {
			_, err := conn.Write(large)
			written <- err == nil
		}()
	}
	for range 8 {
		if !<-written {
			t.Error("a list was refused")
		}
	}
	grown := held() - before
	t.Logf("%d MiB are held", grown>>20)
	if grown > 128<<20 {
		t.Errorf("%d MiB are held", grown>>20)
	}
}
