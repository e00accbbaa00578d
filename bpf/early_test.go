package bpf

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// everyWay is everywhere, and with a veth that has no program.
func everyWay(t *testing.T, test func(*testing.T, *Observer, *pod)) {
	everywhere(t, test)
	t.Run("early", func(t *testing.T) {
		isolate(t)
		p := newPod(t, "host0")
		p.early = true
		test(t, load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour}.constants()}), p)
	})
}

// TestEarly: an interface is observed from before its program is attached until after it is detached, without a packet that is missed or
// recorded twice; the counters go on. Others are not observed.
func TestEarly(t *testing.T) {
	eachMode(t, func(t *testing.T, o *Observer) {
		p, other := newPod(t, "host0"), newPod(t, "host1")
		p.early = true
		if _, err := o.Attach(p.ifindex, AttachOptions{Generation: 7, Early: true}); !errors.Is(err, ebpf.ErrNotSupported) {
			t.Errorf("without the socket: %v", err)
		}
		a := p.attach(t, o, 7)
		wantState := func(want State) {
			t.Helper()
			if got, err := a.State(nil); got != want || err != nil {
				t.Errorf("the state is %q, %v, want %q", got, err, want)
			}
		}
		wantState(Early)
		p.send(t, ipv4Frame("10.0.0.7"))
		other.send(t, ipv4Frame("10.0.0.9"))
		if got := waitFor(t, o, data("10.0.0.7")...)[0]; got.Generation != 7 || got.Ifindex != uint32(p.ifindex) {
			t.Errorf("recorded %+v, want it at interface %d", got, p.ifindex)
		}

		p.early = false
		again := p.attach(t, o, 7)
		if again != a {
			t.Error("another attachment")
		}
		wantState(Attached)
		p.send(t, ipv4Frame("10.0.0.7"))
		p.send(t, ipv4Frame("10.0.0.8"))
		waitFor(t, o, data("10.0.0.8")...)
		if err := o.CloseEarly(); err != nil {
			t.Fatal(err)
		}
		wantState(Attached)
		p.send(t, ipv6Frame("2001:db8::1"))
		waitFor(t, o, data("2001:db8::1")...)

		if err := o.OpenEarly(); err != nil {
			t.Fatal(err)
		}
		if err := a.Early(); err != nil {
			t.Fatal(err)
		}
		wantState(Early)
		p.send(t, ipv4Frame("10.0.0.8"))
		p.send(t, ipv4Frame("10.0.0.10"))
		waitFor(t, o, data("10.0.0.10")...)
		if err := o.CloseEarly(); err != nil {
			t.Fatal(err)
		}
		wantState(Detached)
		p.send(t, ipv4Frame("10.0.0.11"))

		// Another interface with the same ifindex.
		b := p.attach(t, o, 8)
		p.send(t, ipv4Frame("10.0.0.7"))
		waitFor(t, o, data("10.0.0.7")...)
		if err := errors.Join(a.Close(), b.Early(), b.Early()); err != nil {
			t.Fatal(err)
		}
		if state, err := b.State(nil); state != Detached || err != nil {
			t.Errorf("early without the socket: %q, %v", state, err)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		if err := o.OpenEarly(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
