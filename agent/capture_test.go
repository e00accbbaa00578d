package agent

import (
	"log/slog"
	"testing"

	"github.com/dupip/dupip/agent/capture"
	"github.com/dupip/dupip/agent/core/coretest"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// TestCaptureBeforeProbe: both holders are captured before they are probed, so that their answers are among the frames.
func TestCaptureBeforeProbe(t *testing.T) {
	var probes coretest.Sender
	l := loopOf(t, slog.New(slog.DiscardHandler), &probes, "")
	captured := make(map[uint32]coretest.Sender) // by interface: how many probes had been sent
	l.captures = capture.New(capture.Options{
		Log: slog.New(slog.DiscardHandler), Node: "n/b", VLANs: l.vlansOf,
		Capture: func(all []bpf.Address) error {
			for _, a := range all {
				captured[a.Ifindex] = probes
			}
			return nil
		},
		Release:   func([]bpf.Address) error { return nil },
		CountLost: func([]bpf.Address) int { return 0 },
		Time:      observe.TimeOf,
	})
	first, second := l.add(t, 2, 42, "10.0.0.1"), l.add(t, 3, 43, "10.0.0.1")
	l.packet(first, bpf.Answer)
	before := probes
	l.packet(second, bpf.Answer)
	if probes != before+2 || len(captured) != 2 || captured[2] != before || captured[3] != before {
		t.Errorf("captured after %v probes; %d were sent before the suspicion, %d are now", captured, before, probes)
	}
	l.captures.Add(bpf.Frame{Address: bpf.Address{Ifindex: 2, Generation: 2, IP: one}, Kind: bpf.OtherAnswer, Data: []byte{1}})
	if list, _ := l.captures.Of(one, asItIs); len(list) != 2 || len(list[0].Frames)+len(list[1].Frames) != 1 {
		t.Errorf("%+v", list)
	}
	// A holder of an interface that is gone, or has another netns by now, is not captured.
	h := first.Describe([6]byte{})
	if h.ID.Netns++; l.vlansOf(h, "default") != nil || l.vlansOf(second.Describe([6]byte{}), "default") == nil {
		t.Error("an interface of another holder would be captured")
	}
}

// asItIs describes a holder as it was captured.
func asItIs(h detector.Holder) detector.Holder { return h }
