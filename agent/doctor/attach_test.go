package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/internal/testneeds"
)

// loopbackUp sets lo up, which is down in a new netns.
func loopbackUp() error {
	return netlink.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: loopback}})
}

// The self test succeeds only if the program records the test packet.
func TestSelfTestNeedsTheRecord(t *testing.T) {
	testneeds.Root(t)
	for _, mode := range []bpf.Mode{bpf.Auto, bpf.TCX, bpf.TC, bpf.XDP} {
		err := selfTest(t.Context(), mode)
		// Not every kernel has tcx.
		if _, missing := bpf.ResolveMode(mode); err != nil && (mode != bpf.TCX || !errors.Is(missing, ebpf.ErrNotSupported) || err.Error() != missing.Error()) {
			t.Errorf("%s: %v", mode, err)
		}
	}
	// Without a program there is no record.
	for _, test := range []struct {
		name string
		time time.Duration
		want string
	}{
		{"no time", 200 * time.Millisecond, errBusy.Error()},
		{"time", time.Minute, "no record of it after"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), test.time)
			defer cancel()
			err := netns.DoInNew(func() error { return errors.Join(loopbackUp(), sendTest(ctx, make(chan error))) })
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// readTest waits for the record, and ends when the observer is closed.
func TestReader(t *testing.T) {
	testneeds.Root(t)
	observer, err := bpf.Load(bpf.Options{RingBytes: 4096, MaxAddresses: 1024, MaxInterfaces: 8})
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() { read <- readTest(observer) }()
	select {
	case err := <-read:
		t.Errorf("readTest returned %v before any packet", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := observer.Close(); err != nil {
		t.Error(err)
	}
	if <-read == nil {
		t.Error("readTest returned no error after the observer was closed")
	}
}

// A mode that works and is expensive is a warning.
func TestXDPIsExpensive(t *testing.T) {
	testneeds.Root(t)
	wantCheck(t, attachCheck(bpf.XDP)(t.Context(), &facts{mode: bpf.XDP}), Warn, "--attach xdp", "slower")
	wantCheck(t, attachCheck(bpf.XDP)(t.Context(), &facts{mode: bpf.TC}), OK, "works")
}
