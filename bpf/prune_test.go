package bpf

import (
	"errors"
	"os"
	"testing"
)

// TestPrune: addresses of detached interfaces are removed, also when the index was reused, and no others.
func TestPrune(t *testing.T) {
	eachMode(t, func(t *testing.T, o *Observer) {
		p := newPod(t, "host0")
		previous := attach(t, o, p.ifindex, 1)
		p.send(t, ipv4Frame("10.0.0.7"))
		p.send(t, ipv6Frame("2001:db8::7"))
		waitFor(t, o, data("10.0.0.7")...)
		waitFor(t, o, data("2001:db8::7")...)
		before := count(t, o)
		if err := o.Prune(); err != nil || count(t, o) < before {
			t.Errorf("pruned %d, %v, while all is observed", before-count(t, o), err)
		}
		if before < 2 {
			t.Fatalf("%d addresses are remembered, want 2 or more", before)
		}
		if err := previous.Close(); err != nil {
			t.Fatal(err)
		}
		present := attach(t, o, p.ifindex, 2)
		p.send(t, ipv4Frame("10.0.0.8"))
		waitFor(t, o, data("10.0.0.8")...)
		all := count(t, o)
		if err := o.Prune(); err != nil || all-count(t, o) < before {
			t.Errorf("pruned %d, %v, want %d", all-count(t, o), err, before)
		}
		p.send(t, ipv4Frame("10.0.0.8"))
		wantRecords(t, o, "known after pruning others")
		if entries := count(t, o); entries == 0 {
			t.Error("nothing is left, want the address of the present interface")
		}
		if err := present.Close(); err != nil {
			t.Fatal(err)
		}
		if err := o.Prune(); err != nil || count(t, o) != 0 {
			t.Errorf("%d addresses are left of no interface, %v", count(t, o), err)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		if err := o.Prune(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("pruning after Close gave %v", err)
		}
	})
}
