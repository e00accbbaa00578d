package wire

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

func sampleCapture() cluster.Capture {
	return cluster.Capture{
		Conflict: "5f3a9b21-1", Key: v4, Holder: complete(ourNode).Holder, Since: ago(time.Hour), Until: ago(time.Minute), Lost: 3,
		Frames: []cluster.Frame{
			{At: ago(59 * time.Minute), Length: 42, Data: bytes.Repeat([]byte{7}, 42)},
			{At: ago(58*time.Minute + 123456789), Length: 65000, Data: bytes.Repeat([]byte{8}, 54)},
		},
	}
}

// Captures arrive as they were sent, with times by the receiver's clock.
func TestCaptures(t *testing.T) {
	want := cluster.Document{Captures: []cluster.Capture{sampleCapture(), {Key: v6, Holder: detector.Holder{ID: detector.HolderID{Node: ourNode, Ifindex: 4}}}}}
	for f := range reflect.ValueOf(want.Captures[0]).Fields() { // none was forgotten here
		if reflect.ValueOf(want.Captures[0]).FieldByIndex(f.Index).IsZero() {
			t.Errorf("the sample has no %s", f.Name)
		}
	}
	before := fmt.Sprintf("%+v", want)
	if diff := cmp.Diff(want, passed(t, want, 1<<20, noon), compare); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if after := fmt.Sprintf("%+v", want); after != before {
		t.Errorf("sending changed\n%s to\n%s", before, after)
	}
	later := noon.Add(1000 * time.Hour)
	got := passed(t, want, 1<<20, later).Captures[0].Frames[1]
	if age := later.Sub(got.At).Round(time.Microsecond); age != (58*time.Minute + 123456789).Round(time.Microsecond) {
		t.Errorf("a frame is %v old by another clock", age)
	}
}

// What a hostile node sends is harmless and bounded; what does not fit is counted.
func TestCapturesAreBounded(t *testing.T) {
	hostile := sampleCapture()
	hostile.Conflict, hostile.Lost = "a\x1b[31m"+strings.Repeat("x", 1000), -1
	hostile.Holder.InterfaceName = hostile.Conflict
	hostile.Holder.ID.Node = otherNode
	for len(hostile.Frames) < 2*maxFrames {
		hostile.Frames = append(hostile.Frames, cluster.Frame{At: noon.Add(time.Hour), Length: -5, Data: make([]byte, 5*maxFrame)})
	}
	nobody, nowhere := sampleCapture(), sampleCapture()
	nobody.Holder.ID, nowhere.Key = detector.HolderID{}, detector.Key{Network: "default"}
	// Not by MarshalDocument, which cleans, too.
	d, _, err := UnmarshalDocument(Marshal(map[int]any{11: []any{hostile, nobody, nowhere, 7}}), ourNode, noon)
	if err != nil || len(d.Captures) != 1 || d.Omitted != 3 {
		t.Fatalf("%d captures, %d omitted, %v", len(d.Captures), d.Omitted, err)
	}
	got := d.Captures[0]
	if len(got.Frames) != maxFrames || len(got.Conflict) != maxText || !strings.HasPrefix(got.Conflict, "a?[31m") || got.Lost != 0 ||
		got.Holder.ID.Node != ourNode || got.Holder.InterfaceName != got.Conflict {
		t.Errorf("%d frames of %q, %d lost, by %+v", len(got.Frames), got.Conflict, got.Lost, got.Holder)
	}
	if f := got.Frames[maxFrames-1]; len(f.Data) != maxFrame || f.Length != maxFrame || f.At.After(noon) {
		t.Errorf("a frame of %d bytes, %d of them here, at %v", f.Length, len(f.Data), f.At)
	}
	many := cluster.Document{}
	for range maxCaptures + 5 {
		many.Captures = append(many.Captures, sampleCapture())
	}
	for _, limit := range []int{1 << 20, 5000, 200} {
		got := passed(t, many, limit, noon)
		if n := len(got.Captures); n+got.Omitted != maxCaptures+5 || n > maxCaptures || limit == 1<<20 && n != maxCaptures || limit == 5000 && n == 0 {
			t.Errorf("%d bytes: %d captures, %d omitted", limit, n, got.Omitted)
		}
	}
}
