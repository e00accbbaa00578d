package members

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
)

// FuzzMemberlist: whatever somebody with the key sends to a real memberlist, as a datagram and as a stream, it costs little more memory than
// its bytes, members have names that can be printed and addresses of nodes, and the agent answers a ping.
func FuzzMemberlist(f *testing.F) {
	victim := &node{log: &output{}}
	var err error
	victim.Members, err = Open(Options{Node: "n1", Boot: "b1", Epoch: 1, Bind: "127.0.0.1", Label: "test", Handler: victim})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.Context())
	ended := make(chan error)
	go func() { ended <- victim.Run(ctx) }()
	f.Cleanup(func() { cancel(); <-ended })
	other := newIntruder(f, "") // nothing is sealed, which takes less time
	own, d := memberName(victim.self.Name, victim.self.ID), metadata{Name: "n9", Boot: "b9", Epoch: 9}
	const version = "\x01\x05\x02\x00\x00\x00"
	ping := "\x00" + encode("SeqNo", 7, "Node", own)
	for _, seed := range []string{
		ping, "\x01" + encode("SeqNo", 7, "Target", "\x7f\x00\x00\x01", "Port", 9, "Node", "n9/0", "Nack", false), "\x02" + encode("SeqNo", 7, "Payload", "x"), "\x0b" + encode("SeqNo", 7),
		"\x03" + encode("Incarnation", 1, "Node", "n9", "From", "n8"), together(ping, "\x05"+encode("Incarnation", 9, "Node", own, "From", "n8")),
		"\x04" + encode("Incarnation", 1, "Node", memberName(d.Name, d.member().ID), "Addr", "\x7f\x01\x00\x09", "Port", 9, "Meta", string(wire.Marshal(d)), "Vsn", version),
		pushPull(2, 0, entry(1, "v1"), entry(2, "v2")), pushPull(1_000_000, 0), pushPull(0, 20<<20), squeeze(1000), userMessage + encode("UserMsgLen", 9) + "123456789",
	} {
		f.Add([]byte(seed))
	}
	send := func(t *testing.T, message []byte, reply int) []byte {
		conn, err := other.DialTimeout(victim.self.Address, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // then it is closed
		conn.Write(message)                           //nolint:errcheck // it may be closed
		got, _ := io.ReadAll(io.LimitReader(conn, int64(reply)))
		return got
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := allocated()
		if _, err := other.WriteToAddress(b[:min(len(b), transport.MaxPayload)], memberlist.Address{Addr: victim.self.Address, Name: own}); err != nil {
			t.Fatal(err)
		}
		send(t, b, 0)
		if got := send(t, []byte(ping), 1); string(got) != "\x02" {
			t.Fatalf("the answer to a ping begins with %q", got)
		}
		if cost := allocated() - before; cost > 4<<20+200*uint64(len(b)) {
			t.Errorf("%d bytes cost %d", len(b), cost)
		}
		victim.Members.mu.Lock()
		defer victim.Members.mu.Unlock()
		for id, p := range victim.present {
			if err := checkText("node name", p.Name, maxName, true); err != nil || transport.CheckAddress(p.at) != nil {
				t.Errorf("member %x is %+v at %s: %v", id, p, p.at, err)
			}
		}
	})
}
