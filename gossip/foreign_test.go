package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

// Nodes with agents of another version are counted, and one line in the log says what to
// do, however many there are and however much they say; so does the status, until they
// are upgraded.
func TestAnotherVersion(t *testing.T) {
	for _, version := range []byte{1, 3} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeNet(t)
				var log bytes.Buffer
				f.log = slog.New(slog.NewTextHandler(&log, nil))
				n := f.start("new", testBoot, 1)
				f.log = nil
				others := f.startMany(5)
				f.mu.Lock()
				f.cut = func(from, to string) bool { return from == "new" || to == "new" }
				f.mu.Unlock()
				say := func(sender wire.MemberID) {
					b := wire.Encode(sender, wire.Ack{Seq: 1})
					b[2] = version
					n.handler.Packet(b)
				}
				n.hold(testKey(1), 1) // nobody acknowledges it
				const strangers, rounds = 100, 60
				for range rounds {
					for _, other := range others {
						say(other.member.ID)
					}
					say(n.member.ID)
					for i := range strangers {
						say(wire.MemberID(1000 + i))
					}
					time.Sleep(10 * time.Second)
				}
				synctest.Wait()
				s := n.Status()
				if got, want := s.Dropped["version"], uint64(rounds*(len(others)+1+strangers)); got != want || s.Dropped["malformed"] != 0 {
					t.Errorf("%d counted, want %d; dropped %v", got, want, s.Dropped)
				}
				want := "addresses are not compared with nodes whose agents have another version of gossip: " +
					"finish the upgrade of dupip on node-0, node-1, node-2 and 2 more"
				if !slices.Equal(s.Problems, []string{want}) || s.Unacked != 1 {
					t.Errorf("problems: %q, %d unacknowledged", s.Problems, s.Unacked)
				}
				if got := strings.Count(log.String(), "level=WARN"); got != 1 || !strings.Contains(log.String(), want) {
					t.Errorf("%d warnings:\n%s", got, log.String())
				}
				if len(n.peers) > len(others) {
					t.Errorf("%d peers are known", len(n.peers))
				}

				// All but the last are upgraded; that one is gone.
				others[4].kill()
				f.mu.Lock()
				f.cut = nil
				f.mu.Unlock()
				for _, other := range others[:4] {
					n.handler.Packet(wire.Encode(other.member.ID, wire.Ack{Seq: 1}))
				}
				time.Sleep(30 * time.Second)
				synctest.Wait()
				if problems := n.Status().Problems; len(problems) > 0 || !strings.Contains(log.String(), "are over") {
					t.Errorf("later: %q, log\n%s", problems, log.String())
				}
			})
		})
	}
}

// Who was heard once only is not named for ever.
func TestAnotherVersionIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		n, other := f.start("new", testBoot, 1), f.start("old", testBoot, 1)
		b := wire.Encode(other.member.ID, wire.Ack{Seq: 1})
		b[2] = 1
		n.handler.Packet(b)
		time.Sleep(foreignFor - time.Second)
		if problems := n.Status().Problems; len(problems) != 1 {
			t.Errorf("problems: %q", problems)
		}
		time.Sleep(time.Second)
		if problems := n.Status().Problems; len(problems) != 0 {
			t.Errorf("later: %q", problems)
		}
	})
}

// Who is understood is not said to speak another version, whatever is said in its name.
func TestAnotherVersionIsForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet(t)
		n, other := f.start("new", testBoot, 1), f.start("well", testBoot, 1)
		for range 10 {
			n.handler.Packet(wire.Encode(other.member.ID, wire.Ack{Seq: 1}))
			b := wire.Encode(other.member.ID, wire.Ack{Seq: 1})
			b[2] = 1
			time.Sleep(10 * time.Second)
			n.handler.Packet(b)
			synctest.Wait()
			if problems := n.Status().Problems; len(problems) != 0 {
				t.Fatalf("problems: %q", problems)
			}
		}
	})
}
