package transport

import (
	"encoding/binary"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

// replyConn is a stream on which somebody gets a list.
type replyConn struct {
	net.Conn
	got strings.Builder
}

func (c *replyConn) Write(b []byte) (int, error) { return c.got.Write(b) }
func (c *replyConn) Close() error                { return nil }

// reply is what somebody gets who sends a message, if memberlist answers with another one.
func reply(t *testing.T, n *Transport, message, answer string) string {
	t.Helper()
	conn := &replyConn{}
	s := n.screen(conn, true)
	defer s.Close()
	for s.in = strings.NewReader(message); s.next() == nil; {
	}
	if size, err := s.Write([]byte(answer)); err != nil || size != len(answer) {
		t.Errorf("%d of %d bytes are written, %v", size, len(answer), err)
	}
	return conn.got.String()
}

// listOf is a list of so many members. Their names have the ids from 1 on; every third has died.
func listOf(size int) string {
	b := binary.BigEndian.AppendUint16([]byte("\x06\x83\xa5Nodes\xcd"), uint16(size))
	b = append(b, "\xacUserStateLen\x00\xa4Join\xc3"...)
	for id := wire.MemberID(1); id <= wire.MemberID(size); id++ {
		name, state := nameOf(id), byte(0)
		if id%3 == 0 {
			state = 2
		}
		b = append(append(append(b, "\x83\xa4Name\xd9"...), byte(len(name))), name...)
		b = append(append(b, "\xa4Meta\xc4\x03n9\x01\xa5State"...), state)
	}
	return string(b)
}

// Of many that join at once a few get the whole list. The others get the node itself and some that are alive, other ones each time,
// and know that. What is no answer to somebody who joins is sent as it is.
func TestShortList(t *testing.T) {
	const self, size = 40, 1000
	join, sync := three+named+named+named, strings.Replace(three, "Join\xc3", "Join\xc2", 1)+named+named+named
	whole, named := listOf(size), regexp.MustCompile(`(?s)Name..(n\d+)`)
	synctest.Test(t, func(t *testing.T) {
		n := &Transport{
			Options: Options{ID: self, MemberID: idOf},
			lists:   make(chan struct{}, maxLists), whole: newWhole(), ctx: t.Context(),
		}
		same := func(what, message, answer string) {
			t.Helper()
			if got := reply(t, n, message, answer); got != answer {
				t.Errorf("%s: %d of %d bytes", what, len(got), len(answer))
			}
		}
		for range wholeBurst {
			same("one of the first", join, whole)
		}
		seen := make(map[string]bool)
		for range 200 {
			got := reply(t, n, join, whole)
			names := named.FindAllStringSubmatch(got, -1)
			if len(names) != shortList+1 || !strings.HasPrefix(got, "\x06\x84\xa5Nodes\x11\xacUserStateLen\x00\xa4Join\xc3\xa5Short\xc3\x83\xa4Name") {
				t.Fatalf("%d members in %.60q", len(names), got)
			}
			var all []string
			for _, name := range names {
				id, _ := idOf(name[1])
				if id%3 == 0 || !strings.Contains(whole, "\xa4Name\xd9"+string(rune(len(name[1])))+name[1]+"\xa4Meta") {
					t.Errorf("%s is on a short list", name[1])
				}
				all, seen[name[1]] = append(all, name[1]), true
			}
			if slices.Sort(all); !slices.Contains(all, nameOf(self)) || len(slices.Compact(all)) != shortList+1 {
				t.Errorf("the members are %s", all)
			}
			taker := &Transport{lists: make(chan struct{}, maxLists)}
			s := taker.screen(&pipeConn{Reader: strings.NewReader(got)}, false)
			if err := s.next(); err != nil || !taker.TookShort() || taker.TookShort() {
				t.Errorf("whoever gets it does not know that: %v", err)
			}
		}
		if len(seen) < size/2 {
			t.Errorf("only %d members of %d were on any of the lists", len(seen), size)
		}
		same("an exchange of the lists between members", sync, whole)
		same("a ping", ping, ping)
		same("an error", join, "\x0d\x81\xa5Error\xa1e")
		same("a list that is short", join, listOf(shortList+1))
		if got := n.counts[dropShort].Load(); got != 200 {
			t.Errorf("%d are counted", got)
		}
		time.Sleep(time.Second)
		for range wholeRate {
			same("a second later", join, whole)
		}
		if got := reply(t, n, join, whole); len(got) == len(whole) {
			t.Error("one more is whole")
		}
	})
}

// The largest list that there may be is made short in one go.
func BenchmarkShortList(b *testing.B) {
	n := &Transport{Options: Options{ID: 40, MemberID: idOf}, whole: newWhole()}
	whole := []byte(listOf(16384))
	for b.Loop() {
		if _, err := n.forJoining(whole); err != nil {
			b.Fatal(err)
		}
	}
}
