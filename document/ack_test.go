package document

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestAckCheck(t *testing.T) {
	for _, test := range []struct {
		ack  Ack
		want string // part of the error, empty for none
	}{
		{Ack{By: "alice", Seconds: 60}, ""},
		{Ack{By: "alice", Seconds: 7 * 24 * 3600}, ""},
		{Ack{By: "alice"}, ""}, // an end
		{Ack{By: "alice", Seconds: 59}, "1m to 168h, and not for 59s"},
		{Ack{By: "alice", Seconds: 7*24*3600 + 1}, "168h"},
		{Ack{By: "alice", Seconds: -60}, "1m to 168h"},
		{Ack{Seconds: 60}, "needs a name"},
		{Ack{By: strings.Repeat("a", 254), Seconds: 60}, "needs a name"},
		{Ack{By: "alice", Why: strings.Repeat("a", 513), Seconds: 60}, "a reason of at most 512"},
	} {
		if err := test.ack.Check(); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.ack, err, test.want)
		}
	}
}

func TestAckHolds(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	a := &Ack{By: "alice", At: at, Seconds: 60}
	for after, want := range map[time.Duration]bool{0: true, 59 * time.Second: true, time.Minute: false} {
		if a.Holds(at.Add(after)) != want {
			t.Errorf("after %v: %v", after, !want)
		}
	}
	a.Seconds = 0
	if a.Holds(at) || (*Ack)(nil).Holds(at) {
		t.Error("what is ended holds")
	}
}

// What is said again changes nothing, what is said later does, also an end, and what is said earlier does not.
func TestAckReplaces(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	known := &Ack{By: "alice", Why: "works", At: at, Seconds: 60}
	for _, test := range []struct {
		ack  Ack
		want bool
	}{
		{Ack{By: "alice", Why: "works", At: at.Add(ackJitter), Seconds: 60}, false},
		{Ack{By: "alice", Why: "works", At: at.Add(time.Minute), Seconds: 60}, true},
		{Ack{By: "alice", Why: "works", At: at.Add(-time.Minute), Seconds: 60}, false},
		{Ack{By: "alice", At: at.Add(time.Second)}, true},
		{Ack{By: "bob", Why: "works", At: at.Add(-time.Minute), Seconds: 60}, false},
		{Ack{By: "bob", Why: "works", At: at.Add(time.Second), Seconds: 60}, true},
	} {
		if test.ack.Replaces(known) != test.want {
			t.Errorf("%+v: %v", test.ack, !test.want)
		}
	}
}

// What one command writes, the reporter reads, until it is over; and the next command removes it.
func TestSharedAcks(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	data := map[string]string{"broken": "{", "foreign": `{"ip":"10.0.0.9","by":"","at":"2026-01-01T00:00:00Z"}`}
	say := func(ip, network string, ack Ack) {
		t.Helper()
		patch, err := PatchOfAcks(data, netip.MustParseAddr(ip), network, ack)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range patch {
			if strings.Trim(name, "0123456789abcdef.-roknig") != "" {
				t.Errorf("%q is no name of a ConfigMap's data", name)
			}
			if delete(data, name); value != nil {
				data[name] = value.(string)
			}
		}
	}
	if list, invalid := SharedAcks(data, now); len(list) != 0 || invalid != 2 {
		t.Errorf("%v, %d", list, invalid)
	}
	say("10.0.0.1", "", Ack{By: "alice", At: now, Seconds: 60})
	say("fd00::1", "", Ack{By: "alice", At: now, Seconds: 3600})
	say("10.0.0.1", "blue/1", Ack{By: "bob", At: now, Seconds: 3600})
	if list, invalid := SharedAcks(data, now); len(list) != 3 || invalid != 0 {
		t.Fatalf("%v, %d", list, invalid)
	}
	now = now.Add(time.Minute)
	list, _ := SharedAcks(data, now)
	if len(list) != 2 || list[0].Network != "blue/1" || list[0].By != "bob" || list[1].IP != netip.MustParseAddr("fd00::1") {
		t.Fatalf("%+v", list)
	}
	say("fd00::1", "", Ack{By: "carol", At: now}) // an end stays for a day
	if list, _ = SharedAcks(data, now.Add(endedAck-time.Second)); len(data) != 2 || len(list) != 1 || list[0].By != "carol" || list[0].Seconds != 0 {
		t.Errorf("%+v, %v", list, data)
	}
	if list, _ = SharedAcks(data, now.Add(endedAck)); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	for n := range maxSharedAcks {
		data[fmt.Sprint("x", n)] = data["fd00--1"]
	}
	if _, err := PatchOfAcks(data, netip.MustParseAddr("10.0.0.7"), "", Ack{By: "alice", At: now, Seconds: 60}); err == nil {
		t.Error("there is no bound")
	}
	if list, invalid := SharedAcks(data, now); len(list) != maxSharedAcks || invalid == 0 {
		t.Errorf("%d, %d invalid", len(list), invalid)
	}
}
