package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
)

// The packet has to be seen: that it was sent is not enough.
func TestSelfTestNeedsTheRecord(t *testing.T) {
	for _, mode := range []bpf.Mode{bpf.Auto, bpf.TC, bpf.XDP} {
		if err := selfTest(t.Context(), mode); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := netns.DoInNew(func() error {
		_, pod, err := vethPair()
		if err != nil {
			return err
		}
		return sendTest(ctx, pod, make(chan error))
	})
	if !errors.Is(err, errBusy) || ctx.Err() == nil {
		t.Errorf("there was no time for a record, and the error is %v", err)
	}
	err = netns.DoInNew(func() error {
		_, pod, err := vethPair()
		if err != nil {
			return err
		}
		return sendTest(t.Context(), pod, make(chan error))
	})
	if err == nil || !strings.Contains(err.Error(), "no record of it after") {
		t.Errorf("no record, and the error is %v", err)
	}
	err = netns.DoInNew(func() error {
		host, _, err := vethPair()
		if err != nil {
			return err
		}
		observer, err := bpf.Load(bpf.Options{RingBytes: 4096, MaxAddresses: 1024, MaxInterfaces: 8})
		if err != nil {
			return err
		}
		read := make(chan error, 1)
		go func() { read <- readTest(observer, host) }()
		select {
		case err := <-read:
			return errors.Join(errors.New("a record without a packet"), err, observer.Close())
		case <-time.After(100 * time.Millisecond):
		}
		if err := observer.Close(); err != nil {
			return err
		}
		if <-read == nil {
			return errors.New("reading from a closed observer is no error")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
